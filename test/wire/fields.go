package wire

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Messages makes requests of words: "name=text", "name:=JSON", or "name@FILE"
// for a file's bytes. A name with dots is one of a field's field. "--" begins
// the next message.
func Messages(words []string, readFile func(string) ([]byte, error)) ([]string, error) {
	if readFile == nil {
		readFile = os.ReadFile
	}
	var all []string
	fields := map[string]any{}
	end := func() error {
		text, err := json.Marshal(fields)
		all, fields = append(all, string(text)), map[string]any{}
		return err
	}
	for _, word := range words {
		if word == "--" {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		if err := addField(fields, word, readFile); err != nil {
			return nil, err
		}
	}
	return all, end()
}

func addField(fields map[string]any, word string, readFile func(string) ([]byte, error)) error {
	i := strings.IndexAny(word, "=:@")
	if i <= 0 {
		return fmt.Errorf("%q is no NAME=TEXT, NAME:=JSON or NAME@FILE", word)
	}
	var value any
	switch rest := word[i:]; {
	case rest[0] == '=':
		value = rest[1:]
	case strings.HasPrefix(rest, ":="):
		if err := json.Unmarshal([]byte(rest[2:]), &value); err != nil {
			return fmt.Errorf("%q: %w", word, err)
		}
	case rest[0] == '@':
		data, err := readFile(rest[1:])
		if err != nil {
			return err
		}
		value = data // JSON makes it base64, as protobuf has it
	default:
		return fmt.Errorf("%q is no NAME=TEXT, NAME:=JSON or NAME@FILE", word)
	}
	names := strings.Split(word[:i], ".")
	for _, name := range names[:len(names)-1] {
		inner, ok := fields[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			fields[name] = inner
		}
		fields = inner
	}
	fields[names[len(names)-1]] = value
	return nil
}

// Find returns the value at a path such as "files.0.path" in JSON, a string as
// its text and anything else as JSON.
func Find(text, path string) (string, error) {
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return "", fmt.Errorf("no JSON: %w in %q", err, text)
	}
	for name := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			element, ok := v[name]
			if !ok {
				return "", fmt.Errorf("no %s in %s", path, text)
			}
			value = element
		case []any:
			i := -1
			if _, err := fmt.Sscanf(name, "%d", &i); err != nil || i < 0 || i >= len(v) {
				return "", fmt.Errorf("no %s in %s", path, text)
			}
			value = v[i]
		default:
			return "", fmt.Errorf("no %s in %s", path, text)
		}
	}
	if s, ok := value.(string); ok {
		return s, nil
	}
	found, err := json.Marshal(value)
	return string(found), err
}
