"""Breast cancer in Wisconsin (569 biopsies, 30 measurements each): five-fold accuracy of a network in a pipeline.

Data: scikit-learn's copy of the UCI data set of Wolberg, Street and Mangasarian (1995).
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from aicore import nn
from aicore.nn.sklearn import NetworkClassifier


def main() -> float:
    """Returns the mean accuracy."""
    x, y = load_breast_cancer(return_X_y=True)
    network = NetworkClassifier(
        (32,), optimizer=nn.AdamW(weight_decay=0.05), learning_rate=3e-3, epochs=40, random_state=0
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(make_pipeline(StandardScaler(), network), x, y, cv=folds)
    print(f"accuracy {scores.mean():.2%}, folds {', '.join(f'{score:.2%}' for score in scores)}")
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
