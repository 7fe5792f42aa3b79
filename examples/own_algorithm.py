"""An algorithm of your own: APPO with the plain policy gradient in place of PPO's clipped loss."""

from dataclasses import dataclass

import colobus
from colobus.ops import losses


@dataclass(frozen=True)
class PolicyGradient(colobus.APPO):
    """The loss of Mnih et al. 2016 on the advantages of APPO."""

    epochs: int = 1

    def loss(self, net, minibatch, algorithm_state, random=None):
        """Return policy + value - entropy, and its terms."""
        steps = minibatch.steps
        outputs = net(minibatch.observations)
        log_policy = losses.log_softmax(outputs["policy"], steps.allowed)
        chosen = losses.chosen(log_policy, steps.actions)
        advantages = losses.standardise(steps.advantages, steps.weights)
        policy = losses.policy_gradient(chosen, advantages, steps.weights)
        value = losses.value_loss(outputs["value"].squeeze(1), steps.targets, steps.weights)
        entropy = losses.entropy(log_policy, steps.weights)
        ratios = (chosen - steps.log_probs).detach()
        # `APPO.after` steers by it: games that repeat actions, and old windows, would mislead
        kl = losses.approximate_kl(ratios, steps.weights * steps.independent)
        total = (
            policy + self.value_coefficient * value - float(algorithm_state["entropy"]) * entropy
        )
        terms = {"policy_loss": policy, "value_loss": value, "entropy": entropy}
        return total, {name: term.detach() for name, term in terms.items()} | {"kl": kl}


result = colobus.train(
    "catch", algorithm=PolicyGradient, steps=60_000, until_score=0.9, deterministic=True
)
print(f"{result.steps} steps, score {result.score:.2f}")
