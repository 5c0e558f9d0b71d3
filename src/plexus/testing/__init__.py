"""For tests of protocols: all nodes in one process and virtual time, and conversations with them as text."""

from plexus.testing.conversation import Conversation, TalkingExchange
from plexus.testing.exchange import Exchange, placed, reported, sent

__all__ = ["Conversation", "Exchange", "TalkingExchange", "placed", "reported", "sent"]
