package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/trust"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// mcpConfigs are files in which a project can name the MCP servers that a client starts.
var mcpConfigs = []string{".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json"}

// maxMCPConfig bounds such a file.
const maxMCPConfig = 1 << 20

// mcpConfig is the part of such a file that counts here.
type mcpConfig struct {
	MCPServers, Servers map[string]struct{ Args []string }
}

// checkMCPConfig refuses a command line that comes from a file of the project and grants more than
// mcp without flags. Such a file may come from a stranger. The person can agree once for each
// content of the file, on a terminal.
func (e *env) checkMCPConfig(home *record.Home, source string, cmd *cobra.Command) error {
	wide := wideningFlags(cmd)
	if len(wide) == 0 {
		return nil
	}
	for _, name := range mcpConfigs {
		content, err := safefs.ReadRegularIn(source, name, maxMCPConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return errdefs.New(errdefs.Denied, "%s: %w; it could be where these flags come from", name, err)
		}
		var c mcpConfig
		if json.Unmarshal(content, &c) != nil || !c.starts(e.args) {
			continue // a client cannot read it, or has another reason to start us
		}
		path := filepath.Join(source, name)
		if trusted, err := trust.Has(home, path, content); err != nil || trusted {
			return err
		}
		if err := e.askForMCP(name, wide); err != nil {
			return err
		}
		return trust.Add(home, path, content)
	}
	return nil
}

// starts reports whether a server of the file has this command line.
func (c *mcpConfig) starts(args []string) bool {
	for _, servers := range []map[string]struct{ Args []string }{c.MCPServers, c.Servers} {
		for _, s := range servers {
			if len(s.Args) >= len(args) && slices.Equal(s.Args[len(s.Args)-len(args):], args) {
				return true
			}
		}
	}
	return false
}

// askForMCP asks on the terminal whether flags that a project's file gives may be used.
func (e *env) askForMCP(file string, flags []string) error {
	what := fmt.Sprintf("the project's %s starts this server with %s, which can grant more than the default", file, strings.Join(flags, " "))
	if !e.canAsk() {
		return errdefs.New(errdefs.Denied, "%s; read the file, then run the same command once on a terminal to agree, or configure the server outside of the project", what)
	}
	e.say("%s", what)
	if !e.confirm("Use it, now and until the file changes?") {
		return errdefs.New(errdefs.Denied, "%s: not confirmed", what)
	}
	return nil
}

// narrowing are the flags of mcp that grant nothing.
var narrowing = []string{"hide", "memory", "cpus", "pids", "disk", "timeout", "max-output"}

// wideningFlags are the flags that are given and may grant something, as they are written.
func wideningFlags(cmd *cobra.Command) []string {
	var wide []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		switch {
		case slices.Contains(narrowing, f.Name):
		case f.Name == "preset" && value == preset.Default:
		case f.Name == "dir" && filepath.IsLocal(value):
		default:
			wide = append(wide, "--"+f.Name+" "+vpath.Escape(value))
		}
	})
	return wide
}
