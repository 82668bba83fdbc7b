package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the Makefile to what git describes.
var version = "dev"

type versionInfo struct {
	SchemaVersion int    `json:"schema_version"`
	Version       string `json:"version"`
	Revision      string `json:"revision,omitempty"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

func newVersion(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  agentfense version
  agentfense version --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if asJSON {
				return e.printJSON(v)
			}
			_, err := fmt.Fprintf(e.stdout, "agentfense %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func readVersion() versionInfo {
	v := versionInfo{
		SchemaVersion: schemaVersion,
		Version:       version,
		Go:            runtime.Version(),
		Platform:      runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}
