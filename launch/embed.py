"""Shows your own images as an encoder sees them, and writes the features of the images.

    python -m launch.embed --run=RUN --data_dir=FOLDER --output_dir=OUT

The images may have labels or not; --dataset says what kind of folder or file they are in. Writes
`embed.html`, a page with thumbnails on a 2-D map, clusters, nearest neighbours and near-duplicates,
and the same as numbers:

- `embeddings.csv`, a row for each image: file_name, label, cluster, x, y (its place on the map),
  and its features f0, f1, ... to seven digits.
- `embeddings.npz`, arrays in the order of those rows: file_name, label, features, map, cluster;
  neighbours and similarities, the numbers of the 5 most similar images of each image and their
  cosines; duplicates, the numbers of both images of each pair of near-duplicates.

Images are read and encoded 256 at a time: only their features are kept.
"""

from launch.options import app
from launch.options.script_configs import EmbedConfig


def main(config: EmbedConfig) -> None:
    from launch.runs import embedding

    embedding.embed(config)


SCRIPT = app.Script("embed", main, EmbedConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
