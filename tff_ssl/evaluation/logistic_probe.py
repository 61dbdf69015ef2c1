"""The quick linear probe: regularized logistic regression on frozen features (scikit-learn)."""

from sklearn import linear_model
from threadpoolctl import threadpool_limits

from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation.scaling import ProbeSets


def logistic_probe(
    sets: ProbeSets, inverse_regularization: float = 10.0, max_iterations: int = 1000
) -> labelling.Scores:
    """Scores L2-regularized multinomial logistic regression, solved by L-BFGS.

    The probe is deterministic: the problem is convex, and the solver starts at zero. scikit-learn's
    C, the weight of the summed losses against half the squared norm of the classifier's weights, is
    `inverse_regularization / d`. Scaled examples have a mean squared norm of d, so that features of
    any number are regularized equally. With one C for all, 3072 pixels would hardly be regularized,
    and their accuracy on CIFAR-10 with 5000 labels would fall from 0.36 to 0.27. The default of 10
    did well with 10 to 5000 labels on held-out parts of the training sets of digits and CIFAR-10,
    for pixels and random features; neither a test set nor a trained encoder was used to choose it.
    scikit-learn warns when the iterations do not suffice.
    """
    c = inverse_regularization / sets.train_features.shape[1]
    classifier = linear_model.LogisticRegression(C=c, max_iter=max_iterations)
    # Where other work keeps the cores busy, two threads took five times as long as one.
    with threadpool_limits(1, "blas"):
        classifier.fit(sets.train_features, sets.train_labels)
    return labelling.score(classifier.predict(sets.test_features), sets.test_labels)
