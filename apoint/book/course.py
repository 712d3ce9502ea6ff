"""The course, row by row: what it teaches, where it says so, and which forms it must take in the book.

The sources are five texts: `notes` (Lopès-Quintas, Recent advances in machine learning, 2023–2024), `start`,
`llm` and `weights` (the sessions of the same course), and `theory` (Merad, Théorie de l'apprentissage par
réseaux de neurones, 2020). Forms: I ingredient, P probe, T theory, C claim, F figure.
"""

from __future__ import annotations

from dataclasses import dataclass

AUTHORS = {
    "notes": "Lopès-Quintas",
    "start": "Lopès-Quintas",
    "llm": "Lopès-Quintas",
    "weights": "Lopès-Quintas",
    "theory": "Merad",
}
CHAPTERS = {
    "A": "A network and its first signal",
    "B": "A bad start is not made up",
    "C": "Start well to generalise",
    "D": "Convexity, and how fast descent goes",
    "E": "The curse of dimension",
    "F": "The learning rate and its schedules",
    "G": "Non-linearities",
    "H": "From language back to vision",
    "I": "Updating the weights",
    "J": "Normalising",
    "K": "Why does training work at all?",
}


@dataclass(frozen=True)
class Row:
    """One row of the course.

    Attributes:
        id: A letter for the chapter and a number.
        title: What it teaches, in a few words.
        forms: The forms in which it must exist, as the letters above.
        source: Where the course says it.
        doubtful: Whether the source as written is somewhere wrong, loose or only approximately true.
    """

    id: str
    title: str
    forms: str
    source: str
    doubtful: bool = False

    @property
    def chapter(self) -> str:
        """The letter of its chapter."""
        return self.id[0]


_ROWS = (
    Row("A1", "Neuron, layer, MLP", "I", "notes 1.1, theory 2.1"),
    Row("A2", "Back-propagation by hand", "TC", "notes ex. 1.1, start ex. 1", doubtful=True),
    Row("A3", "Losses", "I", "notes, llm"),
    Row("A4", "Vanishing and exploding gradients", "PCF", "notes 1.1.1", doubtful=True),
    Row("A5", "Activations, dead units", "IPCF", "notes 1.1.2, bibliography", doubtful=True),
    Row("A6", "Variance recursion", "PTCF", "notes 1.1.2", doubtful=True),
    Row("A7", "Glorot", "IC", "notes ex. 1.2"),
    Row("A8", "He", "IC", "notes ex. 1.3"),
    Row("A9", "Gain of any activation", "ITC", "notes ex. 1.4", doubtful=True),
    Row("A10", "Fixup", "IC", "notes 1.2.1, start annex"),
    Row("B1", "Deficits", "I", "notes 1.2"),
    Row("B2", "Deficit until epoch N", "CF", "notes fig. 1.3"),
    Row("B3", "Deficit in a moving window", "CF", "notes fig. 1.4"),
    Row("B4", "Kullback–Leibler divergence", "TC", "notes ex. 1.5"),
    Row("B5", "Fisher expansion of it", "TC", "notes 1.2.1", doubtful=True),
    Row("B6", "Trace of the Fisher matrix", "P", "notes 1.2.1"),
    Row("B7", "Its rise and fall", "CF", "notes fig. 1.5"),
    Row("B8", "Information and deficits", "CF", "notes fig. 1.6"),
    Row("B9", "Weight decay and critical periods", "CF", "notes fig. 1.7"),
    Row("B10", "Milder deficits", "C", "notes 1.2"),
    Row("B11", "Residual nets are smoother", "PCF", "notes 1.2.1"),
    Row("C1", "Dropout", "I", "notes 1.3"),
    Row("C2", "Dropout as a geometric mean", "C", "notes 1.3", doubtful=True),
    Row("C3", "Early and late dropout", "ICF", "notes 1.3, start"),
    Row("C4", "Gradients under dropout", "PCF", "notes 1.3, start"),
    Row("C5", "Training loss under early dropout", "CF", "notes 1.3"),
    Row("C6", "Stochastic depth", "ITC", "notes 1.3, start ex. 6"),
    Row("C7", "Late stochastic depth", "C", "notes 1.3"),
    Row("D1", "Convexity", "TCF", "notes A.1"),
    Row("D2", "Stationary points", "C", "notes A.2"),
    Row("D3", "Lipschitz convex descent", "TCF", "notes A.3.1", doubtful=True),
    Row("D4", "Smooth descent", "TCF", "notes A.3.2", doubtful=True),
    Row("D5", "Smoothness, measured", "P", "notes A.3"),
    Row("D6", "Composition and non-convexity", "C", "notes A.4"),
    Row("D7", "Proper losses, calibration", "PCF", "notes title of A, bibliography"),
    Row("E1", "Volume of the p-ball", "TCF", "notes C.1", doubtful=True),
    Row("E2", "Volume in the shell", "TCF", "notes ex. C.1"),
    Row("E3", "Distances concentrate", "PCF", "notes fig. C.4"),
    Row("E4", "Directions become orthogonal", "TCF", "notes C.2", doubtful=True),
    Row("E5", "Interpolation and extrapolation", "PCF", "notes C.3"),
    Row("F1", "One SGD step", "TC", "llm 1.1", doubtful=True),
    Row("F2", "Fixed steps", "TCF", "llm th. 1"),
    Row("F3", "Decreasing steps", "TCF", "llm th. 2"),
    Row("F4", "Mini-batch noise", "PTCF", "llm annex"),
    Row("F5", "Transformer schedule", "IF", "llm 1.2", doubtful=True),
    Row("F6", "Triangular cycles", "IF", "llm 1.2"),
    Row("F7", "Cosine with restarts", "IF", "llm 1.2"),
    Row("F8", "Warm-up and decay", "IF", "llm 1.2"),
    Row("F9", "One cosine as long as training", "C", "llm 1.2", doubtful=True),
    Row("F10", "Length and height of the warm-up", "C", "llm 1.2"),
    Row("F11", "Momentum on a schedule", "I", "llm 1.1"),
    Row("G1", "GELU", "IC", "llm 2.1"),
    Row("G2", "SiLU", "ICF", "llm 2.1"),
    Row("G3", "LSTM cell", "I", "llm 2.2"),
    Row("G4", "Gated units", "IC", "llm 2.2"),
    Row("G5", "Feed-forward blocks", "IC", "llm 2.2"),
    Row("H1", "Convolutional nets", "IC", "llm 3"),
    Row("H2", "Attention-augmented convolution", "I", "llm 3.1"),
    Row("H3", "Visual Transformer", "I", "llm 3.1"),
    Row("H4", "ViT and patches", "ITC", "llm 3.1"),
    Row("H5", "Swin", "I", "llm table"),
    Row("H6", "ConvNeXt", "IC", "llm table"),
    Row("H7", "From ResNet to ConvNeXt", "ICF", "llm 3.2"),
    Row("I1", "Gradient descent, SGD", "IF", "weights 1"),
    Row("I2", "Momentum, Nesterov", "ICF", "weights 1.1"),
    Row("I3", "AdaGrad", "ICF", "weights 1.2"),
    Row("I4", "RMSProp", "ICF", "weights 1.3"),
    Row("I5", "Adam", "ITC", "weights 1.4", doubtful=True),
    Row("I6", "Size of Adam's step", "CF", "weights 1.4", doubtful=True),
    Row("I7", "Weight decay, AdamW", "ICF", "weights 2.1"),
    Row("I8", "Lion", "IC", "weights annex", doubtful=True),
    Row("I9", "Clipping", "ICF", "weights 2.2"),
    Row("I10", "No optimizer wins everywhere", "CF", "weights 1"),
    Row("J1", "BatchNorm", "IPCF", "weights 3.1"),
    Row("J2", "Before or after the activation", "IC", "weights 3.1", doubtful=True),
    Row("J3", "LayerNorm", "ICF", "weights 3.2"),
    Row("J4", "RMSNorm", "IC", "weights 3.3"),
    Row("J5", "Pre- and post-norm", "IPCF", "weights 3.3"),
    Row("K1", "Universal approximation", "CF", "theory 3"),
    Row("K2", "Depth against width", "TCF", "theory 3", doubtful=True),
    Row("K3", "Connected sub-level sets", "PCF", "theory 4"),
    Row("K4", "Symmetries of ReLU nets", "TC", "theory 5"),
    Row("K5", "Teacher and student", "CF", "theory 5"),
    Row("K6", "Tangent kernel", "PTCF", "theory 6"),
    Row("K7", "Wide networks converge", "TPCF", "theory 7"),
    Row("K8", "Lazy training", "PCF", "theory 7"),
    Row("K9", "Mean field", "ICF", "theory 8"),
    Row("K10", "Adversarial perturbation", "PCF", "theory 1"),
    Row("K11", "Generalisation gap", "PC", "theory 2.2"),
)
ROWS = {row.id: row for row in _ROWS}
