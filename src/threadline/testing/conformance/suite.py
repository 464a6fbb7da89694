"""Everything that a store author's test module needs, in one import: the test classes, the fixtures they are written
with, and the limits to open the store with.
"""

from threadline.testing.conformance.access import TestActs, TestCredentials, TestPermits, TestTokens
from threadline.testing.conformance.append import TestAppending, TestExpectedCount, TestRepeating
from threadline.testing.conformance.arguments import TestWrongArguments
from threadline.testing.conformance.arrivals import TestArrivals, TestSenders
from threadline.testing.conformance.change_watch import TestWatching
from threadline.testing.conformance.fixtures import LIMITS, admin, alice, bob, clock, other_tenant, system, tenant_id
from threadline.testing.conformance.handover import TestHandingOver
from threadline.testing.conformance.hidden_parts import TestHiddenParts
from threadline.testing.conformance.history import TestDatedThreads, TestPastTurns, TestRestoredPoints
from threadline.testing.conformance.inbox import TestInbox
from threadline.testing.conformance.isolation import TestBystanders, TestIsolation
from threadline.testing.conformance.messages import TestKeepingBytes, TestLastTurns, TestReadingMessages
from threadline.testing.conformance.outbox import TestDelivering, TestEnqueueing, TestReporting, TestRequeueing
from threadline.testing.conformance.places import (
    TestAgents,
    TestBinding,
    TestContextSnapshots,
    TestLinkCodes,
    TestLinks,
    TestUsers,
)
from threadline.testing.conformance.purge import (
    TestCopying,
    TestPurgingTenants,
    TestPurgingThreads,
    TestPurgingUsers,
    populated,
    replica,
)
from threadline.testing.conformance.retention import TestLegalHolds, TestOverdueThreads
from threadline.testing.conformance.saved_points import TestLoading, TestSaving
from threadline.testing.conformance.search import TestSearching, TestSearchingThePresent
from threadline.testing.conformance.sign_ins import TestSignIns
from threadline.testing.conformance.steered_turns import TestSteering
from threadline.testing.conformance.thread_filters import TestFilteringThreads, TestTenantThreads
from threadline.testing.conformance.thread_lists import TestListingThreads
from threadline.testing.conformance.thread_search import TestSearchingThreads
from threadline.testing.conformance.threads import (
    TestChangingThreads,
    TestCreatingThreads,
    TestDeletingThreads,
    TestReadingThreads,
)
from threadline.testing.conformance.timelines import (
    TestBranching,
    TestExpectedHead,
    TestMoving,
    TestSwitching,
    TestUndoing,
)
from threadline.testing.conformance.transactions import TestSessions, TestTheStore, TestTransacting
from threadline.testing.conformance.turn_commits import TestAcceptTurn, TestFinishTurn
from threadline.testing.conformance.turn_output import TestChunks, TestSummaries, TestToolRuns
from threadline.testing.conformance.turn_takeovers import (
    TestContinuingInterruptedTurns,
    TestHolderChecks,
    TestReplacing,
)
from threadline.testing.conformance.turns import TestEnding, TestLeasing, TestListingTurns
from threadline.testing.conformance.usage import TestUsage
from threadline.testing.conformance.users import TestDisabledUsers
from threadline.testing.conformance.values import TestExpiringValues, TestListingValues, TestOwnersOfValues, TestValues

__all__ = [
    "LIMITS",
    "TestAcceptTurn",
    "TestActs",
    "TestAgents",
    "TestAppending",
    "TestArrivals",
    "TestBinding",
    "TestBranching",
    "TestBystanders",
    "TestChangingThreads",
    "TestChunks",
    "TestContextSnapshots",
    "TestContinuingInterruptedTurns",
    "TestCopying",
    "TestCreatingThreads",
    "TestCredentials",
    "TestDatedThreads",
    "TestDeletingThreads",
    "TestDelivering",
    "TestDisabledUsers",
    "TestEnding",
    "TestEnqueueing",
    "TestExpectedCount",
    "TestExpectedHead",
    "TestExpiringValues",
    "TestFilteringThreads",
    "TestFinishTurn",
    "TestHandingOver",
    "TestHiddenParts",
    "TestHolderChecks",
    "TestInbox",
    "TestIsolation",
    "TestKeepingBytes",
    "TestLastTurns",
    "TestLeasing",
    "TestLegalHolds",
    "TestLinkCodes",
    "TestLinks",
    "TestListingThreads",
    "TestListingTurns",
    "TestListingValues",
    "TestLoading",
    "TestMoving",
    "TestOverdueThreads",
    "TestOwnersOfValues",
    "TestPastTurns",
    "TestPermits",
    "TestPurgingTenants",
    "TestPurgingThreads",
    "TestPurgingUsers",
    "TestReadingMessages",
    "TestReadingThreads",
    "TestRepeating",
    "TestReplacing",
    "TestReporting",
    "TestRequeueing",
    "TestRestoredPoints",
    "TestSaving",
    "TestSearching",
    "TestSearchingThePresent",
    "TestSearchingThreads",
    "TestSenders",
    "TestSessions",
    "TestSignIns",
    "TestSteering",
    "TestSummaries",
    "TestSwitching",
    "TestTenantThreads",
    "TestTheStore",
    "TestTokens",
    "TestToolRuns",
    "TestTransacting",
    "TestUndoing",
    "TestUsage",
    "TestUsers",
    "TestValues",
    "TestWatching",
    "TestWrongArguments",
    "admin",
    "alice",
    "bob",
    "clock",
    "other_tenant",
    "populated",
    "replica",
    "system",
    "tenant_id",
]
