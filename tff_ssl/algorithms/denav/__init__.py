"""DeNAV: decentralized self-supervised learning with a training navigator."""
