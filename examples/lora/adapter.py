"""From a model that Plexus left to a folder that peft loads: python adapter.py model.safetensors FOLDER"""

import sys

from lora_task import model
from safetensors.torch import load_file


def main(file, folder):
    module = model()
    module.load_state_dict(load_file(file), strict=False)  # tied weights are in the file once
    module.save_pretrained(folder)
    module.unload().save_pretrained(f"{folder}/base")
    print(f"the adapter is in {folder}, the model that it belongs to in {folder}/base")


if __name__ == "__main__":
    main(*sys.argv[1:])
