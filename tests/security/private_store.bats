# lab: --user root
# Who can look into the node's image store? The service user, and nobody else: what alice was let in to stays hers to tell.
load ../cluster/helpers

store=/var/lib/situla

alices_image() {
  rm -rf "${store:?}/images" "$store/layers"
  run_and_show as_alice srun --container-image=auth.test/tiny true
  [ "$status" -eq 0 ]
  image=$(find "$store" -name '*.sqsh')
  [ -n "$image" ]
}

# before: image and record were listed: .../images/sha256/<digest>.sqsh, .../<digest>.json
@test "another user cannot list the store" {
  alices_image
  run_and_show as bob find "$store" -name '*.sqsh' -o -name '*.json'
  [ "$output" = "find: ‘$store’: Permission denied" ]
}

# before: "sources": ["auth.test/tiny"]
@test "another user cannot read a record of the store" {
  alices_image
  run_and_show as bob cat "${image%.sqsh}.json"
  [ "$status" -ne 0 ]
  [[ "$output" == *"Permission denied"* ]]
}

# before: the step started: "hello from the top layer"
@test "another user cannot start an image of the store by its path" {
  alices_image
  run_and_show as bob srun --container-image="$image" cat hello.txt
  [ "$status" -ne 0 ]
  [[ "$output" == *"Permission denied"* ]]
  [[ "$output" != *"hello from the top layer"* ]]
}

# before: everything in it was listed: /var/lib/situla, .../images, .../images/sha256, <digest>.json, <digest>.sqsh
@test "every directory and file is closed to others, and belongs to the service user" {
  alices_image
  run_and_show find "$store" '(' -perm /077 -o ! -user situla ')'
  [ -z "$output" ]
  [ "$(stat -c %a "$image" "${image%.sqsh}.json" | paste -sd ' ')" = "400 600" ]
}

# before: the file was still there
@test "a store that an older release left open is closed, and what lay in it open to all is gone" {
  rm -rf "${store:?}"/*
  install -d -o situla -g situla -m 755 "$store/images" "$store/images/sha256"
  install -o situla -g situla -m 444 /dev/null "$store/images/sha256/$(printf '%064d' 1).sqsh"
  chmod 755 "$store"
  run_and_show as_alice srun --container-image=auth.test/tiny true
  [ "$status" -eq 0 ]
  [ ! -e "$store/images/sha256/$(printf '%064d' 1).sqsh" ]
  run_and_show as bob ls "$store"
  [ "$status" -ne 0 ]
}

# before: "this image was imported from another registry before: fetching it from here once", and one file for both
@test "one digest from two registries is two images: nobody gets what another registry let somebody have" {
  alices_image
  run_and_show as bob srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  [ "$(find "$store" -name '*.sqsh' | wc -l)" -eq 2 ]
  run_and_show jq -r .source "$store"/images/sha256/*.json
  [ "$(sort <<<"$output" | paste -sd ' ')" = "auth.test/tiny registry.test/tiny" ]
  run_and_show as bob srun --container-image=auth.test/tiny true
  [ "$status" -ne 0 ]
}
