package id

import (
	"math/rand/v2"
	"strings"
)

var adjectives = [...]string{
	"able", "amber", "bold", "brave", "brisk", "bright", "calm", "clear", "clever", "cosy", "crisp", "eager", "early", "easy", "fair", "fast",
	"fine", "fond", "fresh", "gentle", "glad", "golden", "good", "grand", "green", "happy", "hardy", "honest", "jolly", "keen", "kind", "lean",
	"light", "lively", "lucid", "lucky", "mellow", "merry", "mild", "modest", "neat", "noble", "patient", "plain", "polite", "proud", "quick", "quiet",
	"rapid", "ready", "royal", "sharp", "silver", "simple", "sincere", "smart", "solid", "steady", "sunny", "swift", "tidy", "warm", "wise", "witty",
}

var nouns = [...]string{
	"acorn", "alder", "anchor", "aspen", "badger", "basil", "beacon", "birch", "brook", "canyon", "cedar", "cliff", "clover", "comet", "coral", "crane",
	"creek", "delta", "dune", "ember", "falcon", "fern", "finch", "fjord", "forest", "garnet", "glade", "harbor", "hazel", "heron", "hill", "island",
	"ivy", "jasper", "juniper", "lagoon", "lake", "lark", "laurel", "linden", "lotus", "maple", "meadow", "mesa", "moss", "oak", "olive", "orchard",
	"otter", "pebble", "pine", "plover", "poplar", "quartz", "raven", "reef", "ridge", "river", "robin", "sage", "sparrow", "thistle", "tulip", "willow",
}

// ProposeName returns a random readable name. It may be in use, which only making the
// sandbox shows. After some tries the names get longer, so that one is free.
func ProposeName(try int) string {
	words := []string{adjectives[rand.IntN(len(adjectives))]}
	for range 1 + try/4 {
		words = append(words, nouns[rand.IntN(len(nouns))])
	}
	return strings.Join(words, "-")
}
