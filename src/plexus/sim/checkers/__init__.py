"""What must hold in every storm, whatever happens. Separate from the protocols: a checker looks on.

Each invariant is a class, named after what it promises. docs/guarantees.md says it in words.
"""

from plexus.sim.checkers.accounting import AccountsBalance, LinksHold
from plexus.sim.checkers.aggregates import (
    AcknowledgedIsAggregated,
    AggregatesHoldTheirRound,
    ModelsEnterOnce,
    NoModelIsIgnored,
)
from plexus.sim.checkers.api import Checker, Checkers, Scene, Violation
from plexus.sim.checkers.counters import CountersBelongToTheirOwner
from plexus.sim.checkers.liveness import RoundsComplete, ViewsAgree
from plexus.sim.checkers.offline import GoneIsGone, OfflineIsSilent
from plexus.sim.checkers.rounds import NewestRoundWins, OneTrainingAtATime, RoundsNeverGoBack
from plexus.sim.checkers.stalls import NothingStalls
from plexus.sim.checkers.views import ViewsMoveForward

SAFETY: tuple[type[Checker], ...] = (
    OfflineIsSilent,
    GoneIsGone,
    RoundsNeverGoBack,
    NewestRoundWins,
    OneTrainingAtATime,
    ModelsEnterOnce,
    AggregatesHoldTheirRound,
    AcknowledgedIsAggregated,
    NoModelIsIgnored,
    CountersBelongToTheirOwner,
    ViewsMoveForward,
    NothingStalls,
    AccountsBalance,
    LinksHold,
)

__all__ = ["SAFETY", "Checker", "Checkers", "RoundsComplete", "Scene", "ViewsAgree", "Violation"]
