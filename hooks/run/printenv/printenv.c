/* What environment and directory did the login shell and /etc/rc leave? Executed in their place, inside the container, where
 * nothing can be relied on: static, a few system calls, no allocation. Writes the working directory and then every variable, each
 * ended by a NUL, to the descriptor whose number is its argument. A final empty string says that nothing is missing. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int put(int fd, const char *bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written < 0) return -1;
    bytes += written;
    size -= (size_t)written;
  }
  return 0;
}

int main(int argc, char *argv[], char *envp[]) {
  static char directory[PATH_MAX];
  if (argc != 2) return 2;
  const int fd = atoi(argv[1]);
  if (getcwd(directory, sizeof directory) == NULL) return 3;
  if (put(fd, directory, strlen(directory) + 1) != 0) return 4;
  for (; *envp != NULL; ++envp)
    if (put(fd, *envp, strlen(*envp) + 1) != 0) return 4;
  return put(fd, "", 1) != 0 ? 4 : 0;
}
