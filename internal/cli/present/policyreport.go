package present

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// PolicyReport is what a question about a policy found.
type PolicyReport struct {
	Title    string
	Findings []PolicyFinding
	Summary  string // in place of findings, if there are none
}

// PolicyFinding is one answer. Its texts are escaped.
type PolicyFinding struct {
	Kind   string // "holds", "wider"
	Text   string
	Reason string
	Bad    bool   // it is to be looked at
	Source string // of the rule: FILE:LINE, or a preset
}

// Text writes a line for each finding.
func (r PolicyReport) Text(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s: %s", f.Kind, f.Text)
		if f.Reason != "" {
			fmt.Fprintf(&b, ": %s", f.Reason)
		}
		b.WriteByte('\n')
	}
	if r.Summary != "" {
		fmt.Fprintln(&b, r.Summary)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes a table for a comment or a job summary on GitHub.
func (r PolicyReport) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", cell(r.Title))
	if len(r.Findings) > 0 {
		b.WriteString("| | path | rule |\n|---|---|---|\n")
	}
	for _, f := range r.Findings {
		mark := "✅"
		if f.Bad {
			mark = "⚠️"
		}
		fmt.Fprintf(&b, "| %s %s | %s | %s |\n", mark, f.Kind, code(f.Text), code(f.Reason))
	}
	if r.Summary != "" {
		fmt.Fprintln(&b, cell(r.Summary))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell is text in which nothing is Markdown or HTML.
func cell(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune("\\`*_{}[]<>()#+!|&@~", c) {
			b.WriteString("&#" + strconv.Itoa(int(c)) + ";")
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// code is text as code in a cell of a table.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "<code>" + cell(text) + "</code>"
}

// sarifLog and the types below are the part of SARIF 2.1.0 (OASIS) that code scanning of GitHub
// reads.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool    sarifTool     `json:"tool"`
	Results []sarifResult `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID               string    `json:"id"`
	ShortDescription sarifText `json:"shortDescription"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations,omitempty"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   sarifRegion   `json:"region"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	StartLine int `json:"startLine"`
}

// SARIF returns the findings that are to be looked at as a log of SARIF 2.1.0. version is that of
// the program.
func (r PolicyReport) SARIF(version string) any {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "agentfense", Version: version, Rules: []sarifRule{}}}, Results: []sarifResult{}}
	known := map[string]bool{}
	for _, f := range r.Findings {
		if !f.Bad {
			continue
		}
		id := "policy/" + strings.ReplaceAll(f.Kind, " ", "-")
		if !known[id] {
			known[id] = true
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{id, sarifText{r.Title}})
		}
		run.Results = append(run.Results, sarifResult{id, "error", sarifText{f.Text + ": " + f.Reason}, locations(f.Source)})
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// locations is the line of a policy file that source names; a preset has none.
func locations(source string) []sarifLocation {
	i := strings.LastIndexByte(source, ':')
	if i < 0 {
		return nil
	}
	line, err := strconv.Atoi(source[i+1:])
	if err != nil {
		return nil
	}
	uri := strings.TrimPrefix(source[:i], "./")
	return []sarifLocation{{sarifPhysical{sarifArtifact{uri}, sarifRegion{line}}}}
}
