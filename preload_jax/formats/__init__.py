"""Files: networks in safetensors, torch's files and layouts, checkpoints, writing whole or not at all."""
