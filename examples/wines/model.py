"""Wines by what is dissolved in them: fitted, when the wheel is built, on the data that scikit-learn brings."""

from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

wines = load_wine()
cultivars = wines.target_names[wines.target]
data, unseen, known, hidden = train_test_split(wines.data, cultivars, test_size=0.3, random_state=0)
trees = HistGradientBoostingClassifier(max_iter=30, random_state=0)
voting = VotingClassifier([("linear", LogisticRegression()), ("trees", trees)], voting="soft")
pipeline = make_pipeline(StandardScaler(), voting).fit(data, known)
