"""Trains in processes of a Ray cluster: two workers, each with an actor and a learner.

python examples/cluster.py                  starts a Ray on this machine for the run
python examples/cluster.py 10.0.0.1:6379    joins a cluster that is running
"""

import sys

import colobus

cluster = colobus.Cluster(address=sys.argv[1] if len(sys.argv) > 1 else "")
result = colobus.train("dba3c-catch", steps=20_000, cluster=cluster)
print(f"{result.steps} steps, score {result.score:.2f}, folder {result.folder}")
