package executable

import (
	"runtime/debug"
	"strings"
	"sync"
)

// version is set by the Makefile to what scripts/version prints.
var version string

// setting returns a build setting that the go command recorded.
var setting = sync.OnceValue(func() map[string]string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	all := map[string]string{"version": info.Main.Version}
	for _, s := range info.Settings {
		all[s.Key] = s.Value
	}
	return all
})

// Version returns the version of this program: the one that the Makefile set, else that of the
// module, which `go install` records, else "dev".
func Version() string {
	recorded := strings.TrimPrefix(setting()["version"], "v")
	switch {
	case version != "":
		return version
	case recorded != "" && recorded != "(devel)":
		return recorded
	}
	return "dev"
}

// Revision returns the commit of the build, "" if the go command recorded none.
func Revision() string { return setting()["vcs.revision"] }

// Build identifies the build: programs of different builds do not work together.
func Build() string {
	build := Version()
	if revision := Revision(); revision != "" {
		build += " " + revision
	}
	if setting()["vcs.modified"] == "true" {
		build += " modified"
	}
	return build
}
