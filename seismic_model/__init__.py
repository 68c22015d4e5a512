"""The 3D ViT masked autoencoder: data, training, evaluation, registry."""

METAFLOW_PACKAGE_POLICY = "include"
