"""What must hold in every storm, whatever happens. Separate from the protocols: a checker looks on.

Each invariant is a class, named after what it promises. docs/guarantees.md says it in words.
"""

from plexus.storm.checkers import (
    aggregations,
    liars,
    liveness,
    membership,
    participants,
    rounds,
    suspicion,
    traffic,
)
from plexus.storm.checkers.api import Checker

SAFETY: tuple[type[Checker], ...] = (
    membership.OfflineIsSilent, membership.GoneIsGone, rounds.RoundsNeverGoBack, rounds.NewestRoundWins,
    rounds.OneTrainingAtATime, rounds.ModelsEnterOnce, rounds.AggregatesHoldTheirRound,
    rounds.AcknowledgedIsAggregated, rounds.NoModelIsIgnored, membership.CountersBelongToTheirOwner,
    membership.ViewsMoveForward, membership.NothingIsLeftOut, membership.BandwidthsAgree,
    membership.ComingAndGoingIsTold,
    aggregations.EnoughModels, aggregations.AllCollectedCounts, aggregations.AggregationsEndInTime,
    aggregations.OneBeginsNothing, aggregations.OneWordEndsNoWork,
    participants.AllOfTheSampleAreAsked, participants.ModelsKeepTheirLineage,
    participants.BestConnectedIsChosen, participants.ParticipantsStopForTheirAck, participants.HeldIsOnDisk,
    traffic.NothingStalls, traffic.AccountsBalance, traffic.LinksHold, aggregations.ChangesCountOnce,
    aggregations.AnswersAreTrue, suspicion.SuspicionFollowsSilence, suspicion.SuspicionIsRefuted,
    suspicion.QuorumIsKept, suspicion.RoundsGrowByTheirStep, liveness.HeavierSideSurvives,
    liars.NobodyIsFarAhead, liars.OneWordIsNotEnough, liars.TheHashDecides, liars.LiarsAreNamed,
    liars.TheHonestAreBelieved,
)  # fmt: skip
"""In the order in which they are asked."""
