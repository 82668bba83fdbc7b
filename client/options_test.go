//go:build linux

package client_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/client"
)

// families are the calls by what they take.
var families = map[string]reflect.Type{
	"New":           reflect.TypeFor[client.Option](),
	"FromCodebase":  reflect.TypeFor[client.FromOption](),
	"FromLocal":     reflect.TypeFor[client.LocalOption](),
	"CreateSandbox": reflect.TypeFor[client.SandboxOption](),
	"LinkCodebase":  reflect.TypeFor[client.LinkOption](),
	"Sandboxes":     reflect.TypeFor[client.ListOption](),
	"Run":           reflect.TypeFor[client.RunOption](),
	"Attach":        reflect.TypeFor[client.AttachOption](),
	"Resume":        reflect.TypeFor[client.ResumeOption](),
	"Audit":         reflect.TypeFor[client.AuditOption](),
	"Session":       reflect.TypeFor[client.SessionOption](),
	"Session.Exec":  reflect.TypeFor[client.SessionRunOption](),
}

func TestOptionsFitTheirCallsAlone(t *testing.T) {
	const (
		server  = "FromCodebase FromLocal New"
		sandbox = "CreateSandbox FromCodebase FromLocal"
	)
	options := map[string]struct {
		make any
		fits string
	}{
		"WithEndpoint":       {client.WithEndpoint, server},
		"WithToken":          {client.WithToken, server},
		"WithTLS":            {client.WithTLS, server},
		"WithProgram":        {client.WithProgram, server},
		"WithCodebaseName":   {client.WithCodebaseName, "FromLocal LinkCodebase"},
		"WithOwnerID":        {client.WithOwnerID, "FromLocal LinkCodebase Sandboxes"},
		"WithIgnoreFiles":    {client.WithIgnoreFiles, "FromLocal LinkCodebase"},
		"WithCodebaseID":     {client.WithCodebaseID, "Sandboxes"},
		"WithName":           {client.WithName, sandbox + " Sandboxes"},
		"WithSync":           {client.WithSync, sandbox},
		"WithUser":           {client.WithUser, sandbox},
		"WithGitUser":        {client.WithGitUser, sandbox},
		"WithHome":           {client.WithHome, sandbox},
		"WithAllowNet":       {client.WithAllowNet, sandbox},
		"WithNetLimits":      {client.WithNetLimits, sandbox},
		"WithPublish":        {client.WithPublish, sandbox},
		"WithAsk":            {client.WithAsk, sandbox},
		"WithBoard":          {client.WithBoard, sandbox},
		"WithGit":            {client.WithGit, sandbox},
		"WithMount":          {client.WithMount, sandbox},
		"WithScratch":        {client.WithScratch, sandbox},
		"WithSecrets":        {client.WithSecrets, sandbox},
		"WithUsage":          {client.WithUsage, "Sandboxes"},
		"WithLabels":         {client.WithLabels, sandbox + " Sandboxes"},
		"WithPreset":         {client.WithPreset, sandbox},
		"WithPermissions":    {client.WithPermissions, sandbox},
		"WithPolicy":         {client.WithPolicy, sandbox},
		"WithRuntime":        {client.WithRuntime, sandbox},
		"WithImage":          {client.WithImage, sandbox},
		"WithResources":      {client.WithResources, sandbox},
		"WithExpiresIn":      {client.WithExpiresIn, sandbox},
		"WithoutStart":       {client.WithoutStart, sandbox},
		"WithTimeout":        {client.WithTimeout, "Attach Run Session.Exec"},
		"WithDetach":         {client.WithDetach, "Attach Run Session.Exec"},
		"WithCheckpoint":     {client.WithCheckpoint, "Attach Run"},
		"WithEnv":            {client.WithEnv, "Attach " + sandbox + " Run Session"},
		"WithWorkdir":        {client.WithWorkdir, "Attach Run"},
		"WithStdin":          {client.WithStdin, "Attach Run"},
		"WithStdout":         {client.WithStdout, "Attach Resume"},
		"WithStderr":         {client.WithStderr, "Attach Resume"},
		"WithTerminal":       {client.WithTerminal, "Attach"},
		"WithOffsets":        {client.WithOffsets, "Resume"},
		"WithFollow":         {client.WithFollow, "Audit"},
		"WithEvents":         {client.WithEvents, "Audit"},
		"WithAfterSeq":       {client.WithAfterSeq, "Audit"},
		"WithSince":          {client.WithSince, "Audit"},
		"WithIgnorePatterns": {client.WithIgnorePatterns, "FromLocal"},
		"WithLink":           {client.WithLink, "FromLocal"},
		"WithUpload":         {client.WithUpload, "FromLocal"},
		"WithShell":          {client.WithShell, "Session"},
	}
	for _, name := range withFunctions(t) {
		if _, known := options[name]; !known {
			t.Errorf("%s is not in this table", name)
		}
	}
	for name, o := range options {
		made := reflect.TypeOf(o.make).Out(0)
		var fits []string
		for _, call := range slices.Sorted(maps.Keys(families)) {
			if made.Implements(families[call]) {
				fits = append(fits, call)
			}
		}
		if diff := cmp.Diff(o.fits, strings.Join(fits, " ")); diff != "" {
			t.Errorf("%s fits other calls (-want +got):\n%s", name, diff)
		}
	}
}

// withFunctions are the names of all options.
func withFunctions(t *testing.T) []string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (With\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
