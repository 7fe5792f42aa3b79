"""Ray: the roles of a plan in processes of a cluster. Nothing else in Gelada imports it.

Of Ray only the stable parts are used: actors, the object store, `ray.wait`, node affinity.
"""
