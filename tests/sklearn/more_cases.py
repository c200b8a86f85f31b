"""More estimators of the table: rarer ones, and other parameters of common ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def add_cases(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    """Add them, those of a family after another."""
    for family in (linear_models, kernels, neighbours, transformers, decompositions, clusters, ensembles, wrappers):
        family(add, seeded)


def linear_models(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.cross_decomposition as cross
    import sklearn.linear_model as linear
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.isotonic import IsotonicRegression
    from sklearn.naive_bayes import BernoulliNB, GaussianNB
    from sklearn.neural_network import MLPRegressor

    for kind in ("texts", "bools", "floats"):
        add(kind, linear.LogisticRegression, linear.RidgeClassifier, GaussianNB, DummyClassifier)
    add("two", lambda: linear.LogisticRegression(solver="liblinear"), lambda: BernoulliNB(binarize=0.5))
    for kind in ("cls", "two"):
        add(kind, seeded(linear.SGDClassifier, loss="modified_huber"), seeded(linear.SGDClassifier))
        add(kind, DummyClassifier, lambda: DummyClassifier(strategy="constant", constant=1))
        add(kind, lambda: DummyClassifier(strategy="most_frequent"))
        add(kind, lambda: LinearDiscriminantAnalysis(solver="eigen"))
        add(kind, lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1))
    add("multilabel", linear.RidgeClassifier)
    add("reg", DummyRegressor, lambda: DummyRegressor(strategy="median"), linear.LassoLarsIC)
    add("reg", IsotonicRegression, lambda: IsotonicRegression(out_of_bounds="clip", increasing=False), extremes=False)
    add("many", DummyRegressor, linear.Ridge, linear.Lasso, linear.RidgeCV, linear.Lars, linear.ElasticNet)
    add("many", cross.CCA, cross.PLSCanonical, cross.PLSSVD, lambda: cross.PLSRegression(scale=False))
    add("many", seeded(MLPRegressor, hidden_layer_sizes=(5,), activation="tanh", max_iter=50))
    add("reg", cross.PLSRegression, seeded(MLPRegressor, hidden_layer_sizes=(4, 3), activation="logistic"))
    add("positive", lambda: linear.TweedieRegressor(power=0), lambda: linear.TweedieRegressor(power=0, link="log"))


def kernels(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.gaussian_process.kernels as of_processes
    import sklearn.kernel_approximation as approximation
    from sklearn.decomposition import KernelPCA
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.semi_supervised import LabelPropagation, LabelSpreading
    from sklearn.svm import SVC, SVR, NuSVR, OneClassSVM

    add("cls", lambda: SVC(decision_function_shape="ovo"), lambda: SVC(break_ties=True))
    add("texts", SVC, lambda: SVC(kernel="poly", degree=2, coef0=1.0))
    add("reg", lambda: SVR(kernel="sigmoid"), lambda: NuSVR(kernel="poly"))
    add("outlier", lambda: OneClassSVM(kernel="linear"), lambda: OneClassSVM(nu=0.1, gamma=0.3))
    calm = {"extremes": False}
    add("reg", KernelRidge, **calm)
    for name in ("rbf", "poly", "sigmoid", "laplacian", "cosine"):
        add("reg", lambda name=name: KernelRidge(kernel=name), **calm)
        add("many", lambda name=name: KernelRidge(kernel=name, gamma=0.2), **calm)
        add("transform", seeded(approximation.Nystroem, kernel=name, n_components=20), **calm)
    add("positive", lambda: KernelRidge(kernel="chi2", gamma=0.5), lambda: KernelRidge(kernel="additive_chi2"), **calm)
    for name in ("poly", "sigmoid", "cosine"):
        add("transform", lambda name=name: KernelPCA(3, kernel=name, gamma=0.1), **calm)
    add("transform", seeded(approximation.RBFSampler, n_components=20), **calm)
    add("positive-transform", approximation.AdditiveChi2Sampler, **calm)
    add("positive-transform", lambda: approximation.AdditiveChi2Sampler(sample_steps=3), **calm)
    add("positive-transform", seeded(approximation.SkewedChi2Sampler, n_components=20), **calm)
    for options in ({}, {"degree": 3, "coef0": 1}, {"n_components": 21, "gamma": 0.5}):
        add("transform", seeded(approximation.PolynomialCountSketch, **{"n_components": 20, **options}), **calm)
    for kernel in (
        of_processes.RBF(0.7) + of_processes.WhiteKernel(0.1),
        of_processes.ConstantKernel(2.0) * of_processes.Matern([1.0, 2.0, 0.5, 1.0], nu=1.5),
        of_processes.Matern(nu=0.5),
        of_processes.Matern(nu=2.5),
        of_processes.RationalQuadratic(alpha=0.5),
        of_processes.RBF() + 0.01 * of_processes.ExpSineSquared(periodicity=3.0) + of_processes.WhiteKernel(0.5),
        of_processes.DotProduct() ** 2 + of_processes.RBF(),
    ):
        given = {"kernel": kernel, "optimizer": None}
        add("reg", seeded(GaussianProcessRegressor, alpha=0.1, normalize_y=True, **given), **calm)
        add("two", seeded(GaussianProcessClassifier, **given), **calm)
    add("many", seeded(GaussianProcessRegressor, alpha=0.1), **calm)
    add("texts", seeded(GaussianProcessClassifier), **calm)
    add("cls", seeded(GaussianProcessClassifier, multi_class="one_vs_one"), **calm)
    for cls in (LabelPropagation, LabelSpreading):
        add("cls", lambda cls=cls: cls(gamma=0.5), lambda cls=cls: cls(kernel="knn"), **calm)


def neighbours(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.neighbors as neighbors

    calm = {"extremes": False}
    for metric in ("cosine", "canberra", "braycurtis", "correlation", "sqeuclidean", "manhattan"):
        add("cls", lambda m=metric: neighbors.KNeighborsClassifier(metric=m, algorithm="brute"), **calm)
    add("texts", neighbors.KNeighborsClassifier, neighbors.NearestCentroid, **calm)
    add("multilabel", lambda: neighbors.KNeighborsClassifier(weights="distance"), **calm)
    add("multilabel", lambda: neighbors.RadiusNeighborsClassifier(radius=9.0), **calm)
    add("cls", lambda: neighbors.RadiusNeighborsClassifier(radius=0.8, outlier_label=1), **calm)
    add("cls", lambda: neighbors.RadiusNeighborsClassifier(radius=0.8, weights="distance", outlier_label=7), **calm)
    add("reg", lambda: neighbors.KNeighborsRegressor(weights=lambda d: np.exp(-d)), **calm)
    add("many", lambda: neighbors.RadiusNeighborsRegressor(radius=9.0, weights="distance"), **calm)
    for kind in ("cls", "two"):
        add(kind, neighbors.NearestCentroid, lambda: neighbors.NearestCentroid(metric="manhattan"), **calm)
        add(kind, lambda: neighbors.NearestCentroid(priors="empirical", shrink_threshold=0.2), **calm)
    add("transform", lambda: neighbors.KNeighborsTransformer(mode="connectivity"), **calm)
    add("transform", neighbors.RadiusNeighborsTransformer, **calm)
    add("outlier", lambda: neighbors.LocalOutlierFactor(novelty=True, contamination=0.1, p=1), **calm)
    for kernel in ("gaussian", "tophat", "epanechnikov", "exponential", "linear", "cosine"):
        add("density", lambda k=kernel: neighbors.KernelDensity(kernel=k, bandwidth=4.0), **calm)
    add("density", lambda: neighbors.KernelDensity(bandwidth="scott", metric="manhattan", kernel="tophat"), **calm)


def transformers(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.preprocessing as preprocessing
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
    from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
    from sklearn.random_projection import SparseRandomProjection
    from sklearn.tree import DecisionTreeRegressor

    add(
        "transform", lambda: preprocessing.MinMaxScaler(clip=True), lambda: preprocessing.StandardScaler(with_std=False)
    )
    add("transform", lambda: preprocessing.RobustScaler(with_centering=False))
    add("positive-transform", lambda: preprocessing.PowerTransformer(method="box-cox"), extremes=False)
    normal = {"n_quantiles": 50, "output_distribution": "normal"}
    add("transform", seeded(preprocessing.QuantileTransformer, **normal))
    add("ints-transform", seeded(preprocessing.QuantileTransformer, n_quantiles=50))
    for extrapolation in ("constant", "linear", "continue", "periodic"):
        given = {"extrapolation": extrapolation}
        add("transform", lambda g=given: preprocessing.SplineTransformer(**g), extremes=False)
        given = {**given, "degree": 2, "knots": "quantile", "include_bias": False}
        add("transform", lambda g=given: preprocessing.SplineTransformer(**g), extremes=False)
    for strategy in ("uniform", "quantile", "kmeans"):
        add("transform", seeded(preprocessing.KBinsDiscretizer, strategy=strategy, n_bins=4))
    add("transform", lambda: preprocessing.FunctionTransformer(np.arctan))
    add("positive-transform", lambda: preprocessing.FunctionTransformer(np.log1p))
    add(
        "ints", lambda: preprocessing.OneHotEncoder(drop="first"), lambda: preprocessing.OneHotEncoder(drop="if_binary")
    )
    add("ints", lambda: preprocessing.OneHotEncoder(max_categories=3, handle_unknown="infrequent_if_exist"))
    add("ints", lambda: preprocessing.OneHotEncoder(min_frequency=30, drop="first"))
    add("ints", lambda: preprocessing.OrdinalEncoder(max_categories=3))
    unknown = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    add("counts-transform", lambda: preprocessing.OrdinalEncoder(**unknown))
    add("counts-transform", lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"))
    add("ints", lambda: preprocessing.TargetEncoder(random_state=0))
    add("labels", lambda: preprocessing.LabelBinarizer(neg_label=-1, pos_label=2))
    add("missing-transform", IterativeImputer, seeded(IterativeImputer, estimator=LinearRegression()), extremes=False)
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    given = {"estimator": tree, "initial_strategy": "median", "add_indicator": True, "max_iter": 3}
    add("missing-transform", seeded(IterativeImputer, **given), extremes=False)
    add(
        "missing-transform",
        seeded(IterativeImputer, estimator=BayesianRidge(), min_value=0.05, max_value=0.1),
        extremes=False,
    )
    for strategy in ("mean", "median", "most_frequent", "constant"):
        add("missing-transform", lambda s=strategy: SimpleImputer(strategy=s, add_indicator=s == "median"))
    add("missing-transform", KNNImputer, lambda: KNNImputer(weights="distance", add_indicator=True), extremes=False)
    add("missing-transform", MissingIndicator, lambda: MissingIndicator(features="all"))
    add("counts-transform", lambda: SimpleImputer(missing_values=0))
    add("transform", lambda: SequentialFeatureSelector(LogisticRegression(), n_features_to_select=2, cv=2))
    add("transform", seeded(SparseRandomProjection, n_components=2))


def decompositions(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.decomposition as decomposition
    from sklearn.cluster import FeatureAgglomeration
    from sklearn.covariance import EllipticEnvelope
    from sklearn.manifold import Isomap, LocallyLinearEmbedding
    from sklearn.neural_network import BernoulliRBM

    calm = {"extremes": False}
    add("transform", lambda: decomposition.PCA(2, whiten=True), lambda: decomposition.IncrementalPCA(2, whiten=True))
    add("transform", seeded(decomposition.FastICA, n_components=3), lambda: decomposition.FactorAnalysis(2), **calm)
    add("transform", seeded(decomposition.SparsePCA, n_components=3), **calm)
    add("transform", seeded(decomposition.MiniBatchSparsePCA, n_components=3), **calm)
    dictionary = np.random.default_rng(3).normal(size=(6, 4))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    coder = {"dictionary": dictionary, "transform_n_nonzero_coefs": 2}
    add("transform", lambda: decomposition.SparseCoder(**coder), **calm)
    add("transform", lambda: decomposition.SparseCoder(dictionary, transform_algorithm="threshold"), **calm)
    add("transform", lambda: decomposition.SparseCoder(dictionary, transform_algorithm="lasso_lars"), **calm)
    for cls in (decomposition.DictionaryLearning, decomposition.MiniBatchDictionaryLearning):
        add("transform", seeded(cls, n_components=6, max_iter=5, transform_algorithm="omp"), **calm)
        add("transform", seeded(cls, n_components=6, max_iter=5, transform_n_nonzero_coefs=3, split_sign=True), **calm)
    for cls in (decomposition.NMF, decomposition.MiniBatchNMF, decomposition.LatentDirichletAllocation):
        add("positive-transform", seeded(cls, n_components=2), **calm)
    add("counts-transform", seeded(decomposition.LatentDirichletAllocation, n_components=3))
    add("positive-transform", seeded(decomposition.NMF, n_components=2, alpha_W=0.01, l1_ratio=0.5), **calm)
    add("transform", lambda: FeatureAgglomeration(2), lambda: FeatureAgglomeration(2, pooling_func=np.max))
    add("transform", Isomap, lambda: Isomap(n_neighbors=8, n_components=3), **calm)
    add("transform", seeded(LocallyLinearEmbedding, n_neighbors=6, n_components=2), **calm)
    add("positive-transform", seeded(BernoulliRBM, n_components=3, n_iter=3))
    add("outlier", seeded(EllipticEnvelope), **calm)


def clusters(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.cluster as cluster
    from sklearn.mixture import BayesianGaussianMixture

    calm = {"extremes": False}
    add("cluster", seeded(cluster.BisectingKMeans, n_clusters=4), seeded(cluster.KMeans, n_clusters=7), **calm)
    add("cluster", cluster.MeanShift, seeded(cluster.AffinityPropagation), **calm)
    add("cluster", cluster.Birch, lambda: cluster.Birch(threshold=0.9, n_clusters=None), **calm)
    process = {"weight_concentration_prior_type": "dirichlet_distribution"}
    for covariance in ("tied", "diag", "spherical"):
        add("mixture", seeded(BayesianGaussianMixture, n_components=2, covariance_type=covariance, **process), **calm)


def ensembles(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.ensemble as ensemble
    import sklearn.linear_model as linear
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

    few = {"n_estimators": 5}
    for kind in ("cls", "two"):
        given = {"estimator": linear.LogisticRegression(), "max_features": 0.5, **few}
        add(kind, seeded(ensemble.BaggingClassifier, **given))
        add(kind, seeded(ensemble.BaggingClassifier, estimator=LinearSVC(random_state=0), **few))
        add(kind, seeded(ensemble.AdaBoostClassifier, estimator=linear.LogisticRegression(), **few))
        pair = [("a", linear.LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3, random_state=0))]
        add(kind, lambda p=pair: ensemble.VotingClassifier(p, weights=[1, 3]))
        add(kind, lambda p=pair: ensemble.VotingClassifier(p, voting="soft", weights=[1, 3], flatten_transform=False))
        add(kind, lambda p=pair: ensemble.StackingClassifier(p, cv=2, passthrough=True))
        add(kind, lambda p=pair: ensemble.StackingClassifier(p, cv=2, final_estimator=LinearSVC(random_state=0)))
    add("texts", lambda p=pair: ensemble.VotingClassifier(p), seeded(ensemble.AdaBoostClassifier, **few))
    add("texts", seeded(ensemble.RandomForestClassifier, **few), seeded(ensemble.BaggingClassifier, **few))
    add("bools", seeded(ensemble.GradientBoostingClassifier, **few))
    add("multilabel", seeded(DecisionTreeClassifier), seeded(ExtraTreeClassifier))
    add("multilabel", seeded(ensemble.RandomForestClassifier, **few), seeded(ensemble.ExtraTreesClassifier, **few))
    two = [("a", linear.Ridge()), ("b", linear.Lasso())]
    add("reg", lambda: ensemble.VotingRegressor(two, weights=[1, 2]))
    add("reg", lambda: ensemble.StackingRegressor(two, cv=2, passthrough=True))
    add("reg", seeded(ensemble.BaggingRegressor, estimator=linear.Ridge(), max_features=0.5, **few))
    for loss in ("huber", "quantile", "absolute_error"):
        add("reg", seeded(ensemble.GradientBoostingRegressor, loss=loss, **few))
    for loss in ("poisson", "gamma"):
        add("positive", seeded(ensemble.HistGradientBoostingRegressor, loss=loss, max_iter=8))
    add("outlier", seeded(ensemble.IsolationForest, max_features=0.5, contamination=0.1, **few))


def wrappers(add: Callable[..., None], seeded: Callable[..., Any]) -> None:
    import sklearn.model_selection as selection
    import sklearn.multiclass as multiclass
    import sklearn.multioutput as multioutput
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import MinMaxScaler, PowerTransformer, QuantileTransformer, StandardScaler
    from sklearn.semi_supervised import SelfTrainingClassifier
    from sklearn.svm import SVC, LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    logistic, svc = LogisticRegression(), LinearSVC(random_state=0)
    for kind in ("cls", "two", "texts"):
        for method in ("isotonic", "sigmoid", "temperature"):
            for inner in (GaussianNB(), svc):
                add(kind, lambda i=inner, m=method: CalibratedClassifierCV(i, cv=2, method=m))
        add(kind, lambda: multiclass.OneVsRestClassifier(GaussianNB()), lambda: multiclass.OneVsRestClassifier(svc))
        add(kind, lambda: multiclass.OneVsOneClassifier(GaussianNB()))
        add(kind, seeded(multiclass.OutputCodeClassifier, estimator=LogisticRegression(), code_size=3))
    add("cls", lambda: SelfTrainingClassifier(logistic))
    add("two", lambda: SelfTrainingClassifier(logistic))
    add("cls", lambda: CalibratedClassifierCV(SVC(), cv=2, method="isotonic", ensemble=False))
    for more in ({}, {"threshold": 0.3}, {"threshold": 0.2, "response_method": "decision_function"}):
        add("two", lambda m=more: selection.FixedThresholdClassifier(LogisticRegression(), **m))
    add("twotexts", lambda: selection.FixedThresholdClassifier(logistic, threshold=0.3, pos_label="a"))
    add("twotexts", lambda: selection.FixedThresholdClassifier(svc, threshold=0.2, pos_label="a"))
    add("two", lambda: selection.TunedThresholdClassifierCV(svc, cv=2))
    add("cls", lambda: selection.RandomizedSearchCV(svc, {"C": [1, 2]}, n_iter=2, cv=2))
    add(
        "transform", lambda: selection.GridSearchCV(StandardScaler(), {"with_std": [False]}, cv=2, scoring=lambda *_: 1)
    )
    rows = np.random.default_rng(4).normal(size=(40, 4))
    add("cls", lambda: FrozenEstimator(GaussianNB().fit(rows, np.digitize(rows[:, 0], [-0.5, 0.5]))))
    add("multilabel", lambda: multiclass.OneVsRestClassifier(logistic), lambda: multiclass.OneVsRestClassifier(svc))
    add("multilabel", lambda: multioutput.ClassifierChain(logistic, order=[1, 0]))
    add("multilabel", lambda: multioutput.ClassifierChain(logistic, chain_method="predict_proba"))
    add("multilabel", lambda: multioutput.MultiOutputClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)))
    add("many", lambda: multioutput.RegressorChain(Ridge(), order=[1, 0]))
    add("many", lambda: TransformedTargetRegressor(Ridge(), transformer=StandardScaler()))
    add("reg", TransformedTargetRegressor, lambda: TransformedTargetRegressor(Ridge(), transformer=MinMaxScaler()))
    quantiles = QuantileTransformer(n_quantiles=20, output_distribution="normal")
    add("reg", lambda: TransformedTargetRegressor(LinearRegression(), transformer=quantiles), extremes=False)
    add("reg", lambda: TransformedTargetRegressor(LinearRegression(), transformer=PowerTransformer()), extremes=False)
    logs = {"func": np.log, "inverse_func": np.exp}
    add("positive", lambda: TransformedTargetRegressor(Ridge(), **logs), extremes=False)
