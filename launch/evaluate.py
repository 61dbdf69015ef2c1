"""Evaluates an encoder against the untrained encoder and raw pixels.

--run is the folder of a SavedModel encoder, or of a pretraining run, whose data and model flags
then hold unless they are given. Protocols:
  linear           a linear classifier on the frozen encoder, with few labels;
  held_out         linear, but tested on held-out training images, to choose settings;
  knn              a nearest-neighbour classifier on the frozen encoder, with all labels;
  finetune         encoder and classifier trained together on few labels;
  semi_supervised  finetune with 1 % and 10 % of the labels;
  scratch          supervised training: finetune, but from an untrained encoder;
  transfer         linear, on another data set (--dataset) than the encoder was trained on.
"""

from launch.options import app
from launch.options.script_configs import EvaluateConfig


def main(config: EvaluateConfig) -> None:
    from launch.runs import evaluation, seeds

    if config.output.seeds:
        seeds.evaluate(config)
    else:
        evaluation.evaluate(config)


SCRIPT = app.Script("evaluate", main, EvaluateConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
