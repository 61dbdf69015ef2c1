"""Fine-tuning for object detection and instance segmentation, with Mask R-CNN."""
