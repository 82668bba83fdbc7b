package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/executable"
)

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
	return versionInfo{
		SchemaVersion: schemaVersion,
		Version:       executable.Version(),
		Revision:      executable.Revision(),
		Go:            runtime.Version(),
		Platform:      runtime.GOOS + "/" + runtime.GOARCH,
	}
}
