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

// String is the line that the verb and --version print.
func (v versionInfo) String() string {
	return fmt.Sprintf("agentfense %s (%s, %s)", v.Version, v.Go, v.Platform)
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
			_, err := fmt.Fprintln(e.stdout, v)
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
