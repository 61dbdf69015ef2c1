"""Defaults that depend on the data set; they are known without slow imports."""

from absl import flags

from datasets import case_folder
from datasets.case_folder import Layout

_DIGITS_VIEW_SIZE = 16  # At 8x8, three stages of a ResNet would see 2x2 pixels.
_PARTITIONS = {Layout.TABLE: "per_case", Layout.CLASSES: "dirichlet", Layout.IMAGES: "iid"}


def partition(args: flags.FlagValues) -> str:
    """Name of the partition: `--partition`, or if it is not given that of the data set.

    A folder of images with a table of cases has one client per case. In folders of classes, clients
    have images of one class, by the default of `--alpha`; without classes they are random.
    """
    if args.dataset == "case_folder" and not args["partition"].present:
        return _PARTITIONS[case_folder.layout(args.data_dir)]
    return args.partition


def views(dataset: str, objective: str | None) -> str:
    """The augmentation policy of a data set and an objective, if `--views` is not given."""
    if dataset == "digits":
        return "affine"
    if objective in ("supervised", "mae"):
        return {"supervised": "flip", "mae": "crop_flip"}[objective]
    return "byol_no_blur"


def view_size(dataset: str, args: flags.FlagValues) -> int | None:
    """Height and width of the views in pixels; None if views have the size of the images."""
    return view_size_of(dataset, args.view_size, args.image_size)


def view_size_of(dataset: str | None, given: int | None, image_size: int | None) -> int | None:
    """`view_size` from the values of `--view_size` and `--image_size`."""
    if given is None and dataset == "digits" and image_size is None:
        return _DIGITS_VIEW_SIZE
    return given


def of_data(args: flags.FlagValues) -> dict[str, str]:
    """The values of flags that are not given and whose defaults depend on the other flags.

    Args:
      args: The flags of any script, which may lack some of them.
    """
    values: dict[str, str] = {}
    objective = args.objective if "objective" in args else None
    if "algorithm" in args and args["algorithm"].present and objective is None:
        # Imported here, because it takes seconds.
        from tff_ssl.algorithms import registry

        objective = values["objective"] = registry.find(args.algorithm, None).objectives[0]
    if "partition" in args:
        values["partition"] = partition(args)
    if "views" in args and not args["views"].present:
        values["views"] = views(args.dataset, objective)
    if "view_size" in args and view_size(args.dataset, args):
        values["view_size"] = str(view_size(args.dataset, args))
    if "per_case" in args and args.per_case is None:
        has_cases = args.dataset == "case_folder" and case_folder.has_cases(args.data_dir)
        values["per_case"] = "yes" if has_cases else "no"
    return values
