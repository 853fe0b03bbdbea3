"""The scenarios with Sentinels, with a Cluster, and with a bad network to Redis. Most measure, so they run alone."""

from __future__ import annotations

from tests.chaos.load.load import Work
from tests.chaos.scenarios.scenario import Promise, Scenario
from tests.chaos.servers import cluster, networked, networked_cluster, networked_sentinels, sentinels

# Failovers forget what was only `local`; what is `replicated` must stay.
_BOTH_CLASSES = Work(durabilities=("local", "replicated"))
# A consumer that holds a job of the dead node waits for it, so some consumers must be free.
_MANY_HANDS = Work(consumers=24, durabilities=_BOTH_CLASSES.durabilities)
# A master that is cut off goes on for a while, and every durable change there waits for replicas in vain.
_VERY_MANY_HANDS = Work(consumers=64, durabilities=_BOTH_CLASSES.durabilities)
_DOWN_S = 4.0  # until all clients go on: 1 s until a Sentinel counts a server as down, plus 3 s
# Whoever waits for replicas in vain waits at most three times `durability_timeout_s`: behind two other barriers, and
# for their own. What was in flight when the cut began may take as long before that.
_IN_VAIN_S = 6.0
_CLUSTER_DOWN_S = 6.0  # a node counts as down after 1.5 s, and the vote takes a second or two more

ON_SETS = [
    Scenario(
        "sentinel-master-killed",
        "10 x kill -9 of the master: all clients recover by themselves, and nothing replicated is lost",
        sentinels,
        {"kill-master": {"every_s": 1.5}},
        work=_BOTH_CLASSES,
        promise=Promise(outage_s=_DOWN_S),
        seconds=90,
        alone=True,
    ),
    Scenario(
        "sentinel-master-frozen",
        "SIGSTOP of the master for 30 s: what it holds when it comes back is discarded",
        sentinels,
        {"freeze-master": {"every_s": 3, "for_s": 30}},
        work=_BOTH_CLASSES,
        promise=Promise(outage_s=_DOWN_S),
        seconds=80,
        short={"freeze-master": {"every_s": 0.5, "for_s": 5}},
        alone=True,
    ),
    Scenario(
        "sentinel-failover",
        "20 x SENTINEL FAILOVER",
        sentinels,
        {"step-down": {"every_s": 1}},
        work=_BOTH_CLASSES,
        promise=Promise(outage_s=_DOWN_S),
        seconds=92,
        alone=True,
    ),
    Scenario(
        "replicas-lag",
        "all replicas are stopped for 4 s: answers say `local`, and nobody waits longer than requested",
        sentinels,
        {"freeze-replicas": {"every_s": 2, "for_s": 4}},
        work=_BOTH_CLASSES,
        promise=Promise(outage_s=4),
        seconds=30,
    ),
    Scenario(
        "cluster-master-killed",
        "10 x kill -9 of a master in turn: the other nodes' jobs stay on time",
        cluster,
        {"kill-master": {"every_s": 4}},
        work=_MANY_HANDS,
        promise=Promise(outage_s=_CLUSTER_DOWN_S, late_elsewhere_p99_ms=200),
        seconds=90,
        alone=True,
    ),
    Scenario(
        "cluster-failover",
        "CLUSTER FAILOVER of each master in turn: nothing is lost",
        cluster,
        {"step-down": {"every_s": 2.5}},
        promise=Promise(outage_s=_CLUSTER_DOWN_S),
        seconds=40,
    ),
    Scenario(
        "slots-moved",
        "the slots of 4 shards move back and forth under load: no error reaches a client, nothing is lost",
        cluster,
        {"move-slots": {"every_s": 0.2, "shards": 4, "batch": 10}},
        promise=Promise(errors=0, outage_s=5),
        seconds=40,
        alone=True,
    ),
    Scenario(
        "sentinel-partition",
        "the master is cut off from all others for 1, 5 and 30 s, the service is not: it switches over by itself",
        networked_sentinels,
        {"cut-off": {"every_s": 2, "for_s": [1, 5, 30]}},
        work=_BOTH_CLASSES,
        promise=Promise(outage_s=_DOWN_S),
        seconds=48,
        short={"cut-off": {"every_s": 0.5, "for_s": [6]}},
    ),
    Scenario(
        "sentinel-partition-with-service",
        "the master and the service are cut off from all others for 12 s: what is `replicated` stays",
        networked_sentinels,
        {"cut-off": {"every_s": 2, "for_s": [12], "with_service": True}},
        work=_BOTH_CLASSES,
        promise=Promise(outage_s=_IN_VAIN_S),
        seconds=18,
        short={"cut-off": {"every_s": 0.5, "for_s": [4]}},
    ),
    Scenario(
        "cluster-partition",
        "a master is cut off from all other nodes for 1, 5 and 30 s: the others' jobs stay on time",
        networked_cluster,
        {"cut-off": {"every_s": 3, "for_s": [1, 5, 30]}},
        work=_VERY_MANY_HANDS,
        promise=Promise(outage_s=_CLUSTER_DOWN_S, late_elsewhere_p99_ms=200),
        seconds=46,
        short={"cut-off": {"every_s": 0.5, "for_s": [6]}},
        alone=True,
    ),
    Scenario(
        "cluster-partition-with-service",
        "a master and the service are cut off from all other nodes for 12 s: afterwards everything recovers",
        networked_cluster,
        {"cut-off": {"every_s": 2, "for_s": [12], "with_service": True}},
        work=_MANY_HANDS,
        promise=Promise(outage_s=12 + _CLUSTER_DOWN_S),
        seconds=18,
        short={"cut-off": {"every_s": 0.5, "for_s": [4]}},
    ),
    Scenario(
        "network-cut",
        "nothing passes between service and Redis for 5 s (short: 1 s): in both directions, then in either one",
        networked,
        {
            "bad-weather": {
                "every_s": 3,
                "for_s": 5,
                "weathers": [{"cut": ("there", "back")}, {"cut": ("there",)}, {"cut": ("back",)}],
            }
        },
        promise=Promise(outage_s=10),
        seconds=45,
        short={"bad-weather": {"every_s": 0.5, "for_s": 1}},
    ),
    Scenario(
        "network-slow",
        "1, 10 and 100 ms of latency between service and Redis in each direction, and bytes that trickle",
        networked,
        {
            "bad-weather": {
                "every_s": 1,
                "for_s": 5,
                "weathers": [
                    *({"latency_s": ms / 1000} for ms in (1, 10, 100)),
                    {"slice_bytes": 50, "slice_s": 0.0005},
                ],
            }
        },
        promise=Promise(errors=0, outage_s=2),
        seconds=40,
        short={"bad-weather": {"every_s": 0.2, "for_s": 1}},
    ),
    Scenario(
        "network-resets",
        "1 in 100 chunks between service and Redis resets its connection",
        networked,
        {"bad-weather": {"every_s": 1, "for_s": 10, "weathers": [{"resets": 0.01}]}},
        promise=Promise(outage_s=2),
        seconds=30,
        short={"bad-weather": {"every_s": 0.5, "for_s": 4}},
    ),
]
