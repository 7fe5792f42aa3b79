"""Settings by their names, an experiment made before the run, and a run that goes on."""

import gelada

first = gelada.train("catch", steps=3_000, seed=2, lr=1e-3, actors=1)

experiment = gelada.preset("catch", steps=3_000, entropy=0.01)
print(f"entropy weight {experiment.algorithm.entropy:g}")
gelada.train(experiment)

longer = gelada.train(resume=first.folder, steps=6_000)
print(f"{longer.steps} steps, score {longer.score:.2f}, folder {longer.folder}")
