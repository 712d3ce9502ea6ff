"""Weight files: read and write them in our layout or another library's, with their preprocessing.

loading         `load_weights`, what it reports, and the errors for weights that do not fit
saving          `save_weights`, in our layout or another library's
files           safetensors and state dicts as tensors by name; nothing in a file is ever executed
preprocessing   how images have to be prepared for a set of weights
"""

from apoint.models.weights.loading import Loaded, count_parameters, load_weights
from apoint.models.weights.preprocessing import Preprocessing
from apoint.models.weights.saving import save_weights

__all__ = ["Loaded", "Preprocessing", "count_parameters", "load_weights", "save_weights"]
