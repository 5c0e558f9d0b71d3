"""What must hold in every storm, whatever happens. Separate from the protocols: a checker looks on.

Each invariant is a class, named after what it promises. docs/guarantees.md says it in words.
"""

from plexus.storm.checkers.aggregates import (
    AcknowledgedIsAggregated,
    AggregatesHoldTheirRound,
    ModelsEnterOnce,
    NoModelIsIgnored,
)
from plexus.storm.checkers.api import Checker, Checkers, Scene, Violation
from plexus.storm.checkers.counters import CountersBelongToTheirOwner
from plexus.storm.checkers.liveness import RoundsComplete, ViewsAgree
from plexus.storm.checkers.membership import ViewsMoveForward
from plexus.storm.checkers.offline import GoneIsGone, OfflineIsSilent
from plexus.storm.checkers.rounds import NewestRoundWins, OneTrainingAtATime, RoundsNeverGoBack
from plexus.storm.checkers.stalls import NothingStalls
from plexus.storm.checkers.traffic import AccountsBalance, LinksHold

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
