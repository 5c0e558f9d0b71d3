"""What must hold in every storm, whatever happens. Separate from the protocols: a checker looks on.

Each invariant is a class, named after what it promises. docs/guarantees.md says it in words.
"""

from plexus.storm.checkers.aggregations import AggregationsEndInTime, AllCollectedCounts, EnoughModels
from plexus.storm.checkers.api import Checker
from plexus.storm.checkers.late import AnswersAreTrue, ChangesCountOnce
from plexus.storm.checkers.liars import (
    LiarsAreNamed,
    NobodyIsFarAhead,
    OneWordIsNotEnough,
    TheHashDecides,
    TheHonestAreBelieved,
)
from plexus.storm.checkers.liveness import HeavierSideSurvives
from plexus.storm.checkers.membership import (
    BandwidthsAgree,
    ComingAndGoingIsTold,
    CountersBelongToTheirOwner,
    GoneIsGone,
    OfflineIsSilent,
    ViewsMoveForward,
)
from plexus.storm.checkers.participants import (
    AllOfTheSampleAreAsked,
    BestConnectedIsChosen,
    HeldIsOnDisk,
    ModelsKeepTheirLineage,
    ParticipantsStopForTheirAck,
)
from plexus.storm.checkers.rounds import (
    AcknowledgedIsAggregated,
    AggregatesHoldTheirRound,
    ModelsEnterOnce,
    NewestRoundWins,
    NoModelIsIgnored,
    OneTrainingAtATime,
    RoundsNeverGoBack,
)
from plexus.storm.checkers.suspicion import (
    QuorumIsKept,
    RoundsGrowByTheirStep,
    SuspicionFollowsSilence,
    SuspicionIsRefuted,
)
from plexus.storm.checkers.traffic import AccountsBalance, LinksHold, NothingStalls
from plexus.storm.checkers.views import NothingIsLeftOut

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
    NothingIsLeftOut,
    BandwidthsAgree,
    ComingAndGoingIsTold,
    EnoughModels,
    AllCollectedCounts,
    AggregationsEndInTime,
    AllOfTheSampleAreAsked,
    ModelsKeepTheirLineage,
    BestConnectedIsChosen,
    ParticipantsStopForTheirAck,
    HeldIsOnDisk,
    NothingStalls,
    AccountsBalance,
    LinksHold,
    ChangesCountOnce,
    AnswersAreTrue,
    SuspicionFollowsSilence,
    SuspicionIsRefuted,
    QuorumIsKept,
    RoundsGrowByTheirStep,
    HeavierSideSurvives,
    NobodyIsFarAhead,
    OneWordIsNotEnough,
    TheHashDecides,
    LiarsAreNamed,
    TheHonestAreBelieved,
)
