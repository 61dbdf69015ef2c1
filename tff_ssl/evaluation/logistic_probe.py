"""The quick linear probe: regularized logistic regression on frozen features (scikit-learn)."""

import numpy as np
from sklearn import linear_model
from threadpoolctl import threadpool_limits

from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation import scaling


def logistic_probe(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    *,
    scaler: scaling.FeatureScaler | None = None,
    inverse_regularization: float = 10.0,
    max_iterations: int = 1000,
) -> labelling.Scores:
    """Scores L2-regularized multinomial logistic regression, solved by L-BFGS.

    The probe is deterministic: the problem is convex, and the solver starts at zero. The settings
    are the same for every feature set. scikit-learn's C is the weight of the summed losses, against
    half the squared norm of the classifier's weights; here it is `inverse_regularization / d`.
    Scaled examples have a mean squared norm of d, so that features of any number are regularized
    equally. With one C for all, 3072 pixels would hardly be regularized, and their accuracy on
    CIFAR-10 with 5000 labels would fall from 0.36 to 0.27. The default of 10 did well with 10 to
    5000 labels on held-out parts of the training sets of digits and CIFAR-10, for pixels and random
    features; neither a test set nor a trained encoder was used to choose it.

    Args:
      train_features: Training features, [n, d], finite.
      train_labels: Class labels, integers [n] of at least two classes; examples labelled -1
        (unknown) are ignored.
      test_features: Test features, [m, d], finite.
      test_labels: Class labels, integers [m]; examples labelled -1 are ignored.
      scaler: Scaling of the features (`scaling.fit_scaler`), by convention that of training images
        with or without labels; None for that of the labelled training features, which are only a
        few images at one label per class.
      inverse_regularization: Inverse strength of the regularization, positive, as above.
      max_iterations: Maximum number of L-BFGS iterations; scikit-learn warns when they do not
        suffice.

    Returns:
      Accuracy and balanced accuracy on the test examples.

    Raises:
      ValueError: Shapes do not fit, features are not finite, or there is one class only.
    """
    sets = scaling.prepare(train_features, train_labels, test_features, test_labels, scaler)
    c = inverse_regularization / sets.train_features.shape[1]
    classifier = linear_model.LogisticRegression(C=c, max_iter=max_iterations)
    # Where other work keeps the cores busy, two threads took five times as long as one.
    with threadpool_limits(1, "blas"):
        classifier.fit(sets.train_features, sets.train_labels)
    return labelling.score(classifier.predict(sets.test_features), sets.test_labels)
