package redact

import (
	"bytes"
	"errors"
	"time"

	"github.com/pelletier/go-toml/v2"
)

var errTOML = errors.New("the file is not TOML")

// maxDots is the most dots of a line. For each dot of a key there is a nested table.
const maxDots = 1_000

// TOML masks a TOML file. Its keys are sorted, so that nothing of the order in which a table
// was written remains.
func TOML(content []byte) (masked []byte, err error) {
	if content, err = begin(content); err != nil {
		return nil, err
	}
	for line := range bytes.Lines(content) {
		if bytes.Count(line, []byte{'.'}) > maxDots {
			return nil, errTooDeep
		}
	}
	defer func() {
		if recover() != nil { // a fault of the parser must not end the process
			masked, err = nil, errTOML
		}
	}()
	var document map[string]any
	if err := toml.Unmarshal(content, &document); err != nil {
		return nil, errTOML
	}
	table, err := tomlMask(document, 0)
	if err != nil {
		return nil, err
	}
	var out bounded
	if err := toml.NewEncoder(&out).Encode(table); err != nil {
		return nil, errTooLarge
	}
	return out.Bytes(), nil
}

// tomlMask returns the masked form of v, which is nested depth times.
func tomlMask(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch v := v.(type) {
	case map[string]any:
		masked := make(map[string]any, len(v))
		for key, value := range v {
			m, err := tomlMask(value, depth+1)
			if err != nil {
				return nil, err
			}
			masked[key] = m
		}
		return masked, nil
	case []any:
		return tomlList(v, depth+1)
	case int64:
		return int64(0), nil
	case float64:
		return float64(0), nil
	case bool:
		return false, nil
	case time.Time:
		return time.Unix(0, 0).UTC(), nil
	case toml.LocalDateTime:
		return toml.LocalDateTime{LocalDate: epoch}, nil
	case toml.LocalDate:
		return epoch, nil
	case toml.LocalTime:
		return toml.LocalTime{}, nil
	}
	return maskText, nil
}

var epoch = toml.LocalDate{Year: 1970, Month: 1, Day: 1}

// tomlList masks a list. Of values without parts that follow each other only the first is
// shown.
func tomlList(list []any, depth int) ([]any, error) {
	masked, repeated := []any{}, false
	for _, v := range list {
		plain := true
		switch v.(type) {
		case map[string]any, []any:
			plain = false
		}
		if plain && repeated {
			continue
		}
		repeated = plain
		m, err := tomlMask(v, depth)
		if err != nil {
			return nil, err
		}
		masked = append(masked, m)
	}
	return masked, nil
}
