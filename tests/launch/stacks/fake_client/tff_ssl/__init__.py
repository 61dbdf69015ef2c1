"""Takes the place of `tff_ssl.client` by a small one without TensorFlow; has the other modules."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
