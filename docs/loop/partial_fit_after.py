"""Learn handwritten digits with scikit-learn, a shuffled pass of mini-batches per epoch."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from iteration_lib import open_run

features, labels = load_digits(return_X_y=True)
draw = np.random.default_rng(0)
model = SGDClassifier(random_state=0)


def learn() -> None:
    """Learn from every row of the first 1,400, once."""
    for rows in np.array_split(draw.permutation(1400), 14):
        model.partial_fit(features[rows], labels[rows], classes=np.arange(10))


with open_run("digits") as run:
    for epoch in run.epochs(learnt={}, draw=draw.bit_generator.state, max_epochs=12):
        vars(model).update(epoch.learnt)
        draw.bit_generator.state = epoch.draw
        learn()
        print(f"epoch {epoch.number}: {model.score(features[1400:], labels[1400:]):.4f} of the others are recognised")
        epoch.learnt = {name: value for name, value in vars(model).items() if name.strip("_") + "_" == name}
        epoch.draw = draw.bit_generator.state
vars(model).update(run.result.learnt)
print("result", model.coef_.sum(), model.intercept_.sum(), model.t_)
