"""The MDIO volume: written, read back and compared, exported, and looked at again."""
