package gateway

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/agentfense/agentfense/api"
)

// handwritten describes the routes that are not generated.
//
//go:embed handwritten.swagger.json
var handwritten []byte

// openAPI describes all routes of the API.
func openAPI() ([]byte, error) {
	var all, own map[string]any
	if err := json.Unmarshal([]byte(api.OpenAPI), &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(handwritten, &own); err != nil {
		return nil, err
	}
	if err := merge(all, own); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// merge adds the entries of from to into. An entry of both must be an object in both.
func merge(into, from map[string]any) error {
	for key, value := range from {
		old, both := into[key]
		if !both {
			into[key] = value
			continue
		}
		oldObject, ok := old.(map[string]any)
		object, isObject := value.(map[string]any)
		if !ok || !isObject {
			return fmt.Errorf("openapi: %q is described twice", key)
		}
		if err := merge(oldObject, object); err != nil {
			return err
		}
	}
	return nil
}
