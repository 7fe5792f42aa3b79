"""Evaluates an exported agent: an ONNX file plays 20 games, by its best actions.

    colobus train catch
    colobus export runs/catch-1 --onnx --out policy.onnx
    python examples/evaluate_export.py policy.onnx runs/catch-1

The run, or a folder by `colobus export --hub`, is loaded only to make its games. Where you make
them yourself, nothing of Colobus is needed.
"""

import json
import sys

import numpy as np
import onnxruntime

import colobus

file, folder = sys.argv[1:]
session = onnxruntime.InferenceSession(file)
first, *others = session.get_inputs()  # observations, and the state of a recurrent agent
kind = np.uint8 if first.type == "tensor(uint8)" else np.float32
about = json.loads(session.get_modelmeta().custom_metadata_map["colobus"])
print(about["game"], about["actions"])

env = colobus.load(folder).make_env()
scores = []
for seed in range(1, 21):
    observation, info = env.reset(seed=seed)
    state = {other.name: np.zeros((1, other.shape[1]), np.float32) for other in others}
    score, over = 0.0, False
    while not over:
        stack = observation.reshape(1, *first.shape[1:]).astype(kind)
        values, *after = session.run(None, {first.name: stack} | state)  # float32[1, A]
        state = dict(zip(state, after, strict=True))
        observation, reward, terminated, truncated, info = env.step(values[0].argmax())
        score += reward
        over = terminated or truncated
    scores.append(score)
print(f"{len(scores)} games: {np.mean(scores):.2f}")
