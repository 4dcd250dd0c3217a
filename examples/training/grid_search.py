"""Which network for iris? scikit-learn's grid search over a pipeline."""

from __future__ import annotations

from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from aicore.nn.sklearn import NetworkClassifier


def main() -> float:
    """Returns the accuracy of the best setting, the mean of its folds."""
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), NetworkClassifier(epochs=40, random_state=0))
    grid = {"networkclassifier__hidden": [(8,), (32,)], "networkclassifier__learning_rate": [1e-3, 1e-2]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, y)
    print(f"best: {search.best_params_}, accuracy {search.best_score_:.1%}")
    return float(search.best_score_)


if __name__ == "__main__":
    main()
