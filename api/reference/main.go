// Command reference writes docs/api.md: it reads what `buf build` makes of the
// API's files on standard input, takes the examples from the file that it is
// named, and writes to standard output.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "google.golang.org/genproto/googleapis/api/annotations" // so that routes can be read
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: reference EXAMPLES < IMAGE")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	examples, err := parseExamples(string(text))
	if err != nil {
		return err
	}
	image, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	files, err := filesOf(image)
	if err != nil {
		return err
	}
	w := &writer{examples: examples}
	if err := w.all(files); err != nil {
		return err
	}
	_, err = os.Stdout.Write(w.Bytes())
	return err
}

// ours are the files in the order in which they are described.
var ours = []string{"sandbox/v1/codebase.proto", "sandbox/v1/sandbox.proto", "sandbox/v1/snapshot.proto", "sandbox/v1/history.proto", "sandbox/v1/board.proto", "sandbox/v1/export.proto", "sandbox/v1/common.proto"}

func filesOf(image []byte) ([]protoreflect.FileDescriptor, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(image, &set); err != nil {
		return nil, err
	}
	known, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	return inOrder(known)
}

func inOrder(known *protoregistry.Files) ([]protoreflect.FileDescriptor, error) {
	var files []protoreflect.FileDescriptor
	for _, path := range ours {
		f, err := known.FindFileByPath(path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// example is what is sent and what comes.
type example struct{ requests, answers []string }

// parseExamples reads examples: a call's name, then "> " before each request and
// "< " before each answer.
func parseExamples(text string) (map[string]example, error) {
	found := map[string]example{}
	call := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		e := found[call]
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "> ") && call != "":
			e.requests = append(e.requests, line[2:])
		case strings.HasPrefix(line, "< ") && call != "":
			e.answers = append(e.answers, line[2:])
		case !strings.Contains(line, " "):
			call, e = line, example{}
		default:
			return nil, fmt.Errorf("examples: %q is neither a call nor what it gets or answers", line)
		}
		found[call] = e
	}
	return found, nil
}

// writer writes the document.
type writer struct {
	bytes.Buffer
	examples map[string]example
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
