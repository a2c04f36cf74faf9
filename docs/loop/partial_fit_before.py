"""Learn handwritten digits with scikit-learn, a shuffled pass of mini-batches per epoch."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

features, labels = load_digits(return_X_y=True)
draw = np.random.default_rng(0)
model = SGDClassifier(random_state=0)


def learn() -> None:
    """Learn from every row of the first 1,400, once."""
    for rows in np.array_split(draw.permutation(1400), 14):
        model.partial_fit(features[rows], labels[rows], classes=np.arange(10))


for number in range(12):
    learn()
    print(f"epoch {number}: {model.score(features[1400:], labels[1400:]):.4f} of the others are recognised")
print("result", model.coef_.sum(), model.intercept_.sum(), model.t_)
