"""Settings by their names, an experiment made before the run, and a run that goes on."""

import colobus

first = colobus.train("catch", steps=3_000, seed=2, lr=1e-3, actors=1)

experiment = colobus.preset("catch", steps=3_000, entropy=0.01)
print(f"entropy weight {experiment.algorithm.entropy:g}")
colobus.train(experiment)

longer = colobus.train(resume=first.folder, steps=6_000)
print(f"{longer.steps} steps, score {longer.score:.2f}, folder {longer.folder}")
