"""jobqueue.engine.new_jobs: the defaults of the jobs of a topic."""

from __future__ import annotations

from buckets import Bounds
from jobqueue.engine.new_jobs import Policies, Policy
from jobqueue.settings import PerKey, Settings, TopicSettings


def test_a_topic_without_a_policy_has_the_defaults() -> None:
    policies = Policies(Settings(default_ttr_s=5, default_tries=3, default_retention_s=7, default_priority=2))
    assert policies.of("any") == Policy(5_000, 3, (), None, 7_000, 2, 0, 1, 0)
    assert policies.targets("any") == ()
    assert policies.bounds("any") == Bounds(30 * 86_400_000, 0)


def test_what_a_policy_sets_wins_even_a_zero_and_the_rest_is_as_for_all() -> None:
    topic = TopicSettings(ttr_s=0, tries=0, retention_s=0, priority=0, ttl_s=9, backoff_s=(1, 2), max_pending=8)
    policies = Policies(Settings(topics={"a": topic, "b": TopicSettings(max_dead=5, dead_age_s=60)}))
    assert policies.of("a") == Policy(0, 0, (1_000, 2_000), 9_000, 0, 0, 8, 1, 0)
    assert policies.of("b") == policies.of("c")
    keyed = Policies(Settings(topics={"a": TopicSettings(per_key=PerKey(concurrency=3, rate=0.3))})).of("a")
    assert (keyed.key_concurrency, keyed.key_gap_us) == (3, 3_333_333)
    assert policies.bounds("b") == Bounds(60_000, 5)
