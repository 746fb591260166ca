// What does Situla do as root on a compute node? Exactly these operations, and why each is safe.
#pragma once

#include <array>
#include <string_view>

namespace situla {

/// The closed set. Every privileged call in plugin/broker belongs to one of them; an error carries its phrase. Inputs
/// are integers, digests and descriptors. No path, name or byte that a user, an image or a registry chose is parsed or
/// resolved here.
enum class RootOperation {
  /// Makes Situla's own cgroups and enters them, beside those of jobs, on a node whose Slurm uses cgroups. Their names
  /// are fixed but for the number of the user whose step it is, their limits too. A file of root says where they are,
  /// for what runs after a job.
  own_cgroups,

  /// Starts the store program and the importer. They become the service user and the import user for good and lose
  /// every capability before exec. What is to be imported comes to the store program through a pipe that a process of
  /// the job user fills, when it lives in the job's cgroup, and the importer, too, if there is one already, and that
  /// this side never reads. An importer that the store program wants later starts in the job's cgroup. The importer,
  /// which reads what registries send, says nothing here that decides anything; the store program reports a descriptor,
  /// a digest of fixed length and a checked name.
  start_importer,

  /// Fetches a job's image before the job's first step, as its prolog begins: with start_importer and start_as_user
  /// alone, nothing is mounted. The job has no cgroups yet, so the user's process that writes the request and the
  /// importer live in Situla's own for what runs as him outside of his jobs, with its limits, and never in slurmd's;
  /// where those are not known nothing is begun. No program of the user's runs there (a command in .credentials, a
  /// credential helper): it would have devices, memory and processors that no job of his was given. The process that
  /// reads his files gives up the right to start one, lives in a pid namespace, gets of his environment only variables
  /// of a fixed list, and is ended after half a minute: its user may trace it from exec until it forbids that. Whose
  /// image it is Slurm says, not the text from the job. The socket on which the epilog ends it lies in a directory of
  /// root.
  fetch_before_job,

  /// Starts the builder (also in its modes "request", "clean", "sweep" and "epilog"), the importer (mode "user") or the
  /// saver as the job user: it lives in the job's cgroup, or in Situla's own if it cleans up, before anything else is
  /// done; ids are set for good before exec, the environment is fixed, it gets only the descriptors it needs, and its
  /// program was opened when the broker started. The importer runs in the asking task's mount namespace, entered as for
  /// stage_root; so do imports from registries on a node without a store, and what they make is the user's own file.
  /// The cluster's program (importer= in plugstack.conf) is run by such an importer, never here; its `release`, and
  /// what cleans up, have a pid namespace that ends all they started. A directory for the user's files is made below
  /// runtime_path, where the administrator said, and only one made here is given away.
  start_as_user,

  /// Starts situla-inventory, without arguments of anybody's, which writes what the node has of NVIDIA's to a file of
  /// root. It reads files of the node only; the driver's library is loaded by a process that has become nobody for
  /// good.
  keep_inventory,

  /// Where situla.toml says so (distribute = "sbcast"), in a step of several nodes: makes a directory for files that
  /// other nodes send, named by the job's and the step's number, in one of root's beside the store, and gives it to the
  /// job user, as whom they are written. What comes there is read by nobody here. To be removed it becomes root's, with
  /// mode 0700, so that its user can put nothing more into it; then this side removes names in it, one by one, which
  /// follows no link, and directories, each of which becomes root's in the same way before: opened on the same mount by
  /// a single name, and only if it belongs to the user or his range. What there is no time for, or a crash of the node
  /// has left, goes after later steps, which have a second for all of it.
  keep_incoming,

  /// Starts situla-courier as the job user, in the step's cgroup, with CAP_DAC_READ_SEARCH, of which nothing is in
  /// effect in that program: only Slurm's sbcast gets it, which has to be a file of root's, with fixed arguments and
  /// environment, and opens by it the one file that it is given as a descriptor: the image, whose content this user may
  /// read. Nobody without that capability can trace either of them (ptrace(2)), the user included. What listens and
  /// connects to other nodes is started by it as the user alone, without any capability: it is no more than what he
  /// could start himself.
  start_courier,

  /// Takes the image from the store program as a descriptor that can only read, and accepts only a regular file of one
  /// name that belongs to the service user and has mode 0400. No path in the store is opened here.
  accept_store_image,

  /// Mounts such a file read-only, nosuid, nodev below /run/situla/images (0700, root). The kernel parses the image:
  /// hence only files of the importer, or a user's own file where the administrator said so (kernel_mount_user_images),
  /// which a process that runs as the user, and that he cannot trace, has looked at: a regular file, and none that a
  /// process serves (FUSE).
  mount_image,

  /// Clones that mount and maps owner 0 to the job user, and other owners, which only a user's own file has, to his
  /// range if he has one (write_id_maps). A clone adds no right to the files: they are read-only, the
  /// content of an image whose manifest the registry gave out to this very user.
  map_image_owner,

  /// Where the kernel cannot do that: mounts the image as a file whose owner the store program has changed for this
  /// user, in eight bytes of a copy that shares all other blocks with it, or in a block that device-mapper puts in the
  /// place of the image's. The store program says which file (checked as in accept_store_image, but it has no name), or
  /// which block (sealed memory) and where; this side adds and compares numbers, and parses nothing. The mount lies
  /// beside those of mount_image, under the user's number, and no other user is given it.
  make_view,

  /// For a named container that lies on a copy of a store image: notes, in a file of root below <runtime>/copies, which
  /// image this user was given to copy, and what his builder says of the copy (numbers and hexadecimal digits). When
  /// a later builder of the same user says the same, the store program lends the image (checked as in
  /// accept_store_image), it is mounted as in mount_image, and a forked child attaches a clone beneath the stage of
  /// that builder, whose mount namespace must belong to our own user namespace still: that locks the mount's flags. A
  /// user who lies gets the mount of an image whose bytes he was given before.
  keep_container_image,

  /// For images of registries that the step's mounts name: they come as the step's own do (start_importer,
  /// accept_store_image, start_as_user), are mounted as in mount_image, map_image_owner and make_view, and a forked
  /// child attaches a clone of each beneath the stage of the builder, as in keep_container_image, in a directory whose
  /// name is a number. The builder asks before it has a user namespace. The reference is bytes of the user's, which a
  /// process of his gets as an argument.
  mount_other_image,

  /// In a forked child: enters the mount namespace of the asking task only if that namespace belongs to our own user
  /// namespace (a user cannot make one), makes a private copy, mounts a tmpfs on a fixed path and attaches the clone in
  /// it. All of this happens before a user namespace exists, which is what locks the image mount's flags for the user.
  stage_root,

  /// Writes the id maps for our own unreaped child. The kernel refuses if that process still lives in our user
  /// namespace. Without a range, with setgroups denied: the job user's single uid becomes itself or 0, his group
  /// likewise, and each of the job's other groups becomes itself. What the map gives him is to take one of these groups
  /// for his own, to hand files of his to it, and to make them setgid for it: a member may do each of these outside,
  /// too (newgrp(1), chgrp(1), chmod(2)). It adds no group to a process and takes none from it: setgroups(2) stays
  /// denied, and where his own group is not among his supplementary ones, so that to take another would be to leave it,
  /// no other is mapped. Capabilities in his namespace count for files only whose owner *and* group are in the maps,
  /// and the only owner is he himself. Group 0 is never mapped.
  ///
  /// With a range, 65,535 ids more that root has given him. Either in /etc/subuid and /etc/subgid, files of root's of
  /// which only lines of one exact form count, and, unless situla.toml says otherwise, only where newuidmap(1) and
  /// newgidmap(1) have their privileges and map the same ids for him. Or by a rule in situla.toml (id_ranges), which is
  /// computed, so that no two users' overlap. Neither gives anything if an id of the user's own, or an account, a group
  /// or another's range of the node's own files, lies in it; what a directory service alone knows the administrator
  /// answers for (the doctor asks it for a sample). Nothing of the user's, of an image's or of a container's is read
  /// for it. An id that the map lacks cannot be had, and capabilities do not count for its files. setgroups(2) works
  /// there, as no daemon could become its user without. A process can leave the user's groups by it, as with
  /// newgidmap(1), and files that keep a group's members off (mode 0604) do not keep him off any more: whoever needs
  /// that writes id_ranges = "off". It can enter none: the map has his own groups and the range's. A user whose own
  /// group is not among his supplementary ones has no range. What runs under an id of the range is another user to the
  /// node: it is handed no namespace, and cannot trace or signal the job user. Files, shared memory and queues of such
  /// ids outlive the job, as the user's own do, so that ids once given are never another's (admin.md).
  /// A helper that saves, or removes what others of the range own, begins in such a namespace as well: its map is
  /// written by a child of its own, which was forked as root before the helper became the user and ends with this one
  /// write. It is the job user's process, and its capabilities count for his files and the range's.
  write_id_maps,

  /// Moves our own child into the cgroups of its step, and reads back that it lives there: nothing is started that does
  /// not. Their paths are the kernel's own text about slurmstepd; the part of a job is known by its number. In version
  /// 2 a cgroup `situla` is made in the step's, and removed, with what is left in it, when the step has ended.
  move_to_cgroup,

  /// Where situla.toml says so (job_comment), on the first node of a step: starts situla-recorder, without any
  /// capability, with a word about the image as its argument: letters, digits and a few fixed characters, whatever the
  /// image is called (common/spec/job_record.hpp). With Slurm's own programs, which have to be files of root's, without
  /// a shell, it reads the job's comment and writes it again with that word behind. For a Comment it is the job user in
  /// the step's cgroup. For an AdminComment it has root's uid, which is all that Slurm looks at, in Situla's own
  /// cgroup: what only an administrator may have written is all that it reads.
  record_image,

  /// Where neither situla.toml (slurm_inside) nor the user says otherwise: listens for the Slurm commands that tasks
  /// use in their container, and, when the first of them connects, starts situla-slurm-proxy: as the job user, in the
  /// step's cgroup, in the asking task's mount namespace (as for stage_root), outside of the container. This side
  /// accepts no connection and reads nothing of it; the proxy does, which can do nothing that the user could not do
  /// outside. It ends with this process.
  run_slurm_commands,

  /// Writes what the step's user may read of it into a file below /run/situla/reports/UID: times, numbers, printable
  /// text that is cut, and what he was told. Directories and files are root's, and an access list lets this user read
  /// his files; where the file system has no such lists there are none. Their names are numbers and fixed words. A user
  /// has at most 64, of 32 KiB, and each goes when it is a day old: he owns nothing in /run, and cannot fill it.
  keep_record,

  /// Opens /proc/<our own child>/ns/* and hands them to tasks that showed the token and run as the job user. The user
  /// namespace must be a new one that the job user owns; the others must belong to it. Namespaces of a container that
  /// runs already come from the broker of the step that runs it, or are opened below /proc/<our own child>/fd, by the
  /// number that the child says, and are checked likewise. No descriptor of a user's process is ever received: to close
  /// it could wait for his file system (FUSE) without end.
  hand_out_namespaces,

  /// Copies the job's environment, unread, into a file of root below <runtime>/jobs, for containers that end with their
  /// job: the epilog's helper, which runs as the user, needs it to know where they are. The file's name has the user's
  /// number, and the epilog removes it whatever happens: no other user's job of the same number is given it.
  keep_environment,

  /// Notes in a file of root below <runtime>/jobs which directory on disk the builder said that it has made. After a
  /// killed broker, when the step or its job has ended, the name goes back to a cleaner that runs as the user: here it
  /// is bytes, fewer than PATH_MAX. The last try is the epilog's of its job: no more than the notes of running jobs are
  /// there.
  keep_scratch,

  /// In the job's epilog: ends what fetch_before_job still does, whose socket is known by the job's number. SIGKILL to
  /// what still lives in the cgroups of a job that has ended (what serves a named
  /// container, and what the user's hooks left), by pidfd and only while the kernel lists it there; then removes them.
  /// Their paths are the kernel's own text; only those that Slurm has named for the job, and their parents when empty.
  end_job,

  /// Ends processes by pidfd that belong to the job user, or to an id of his range, and live in that user namespace or
  /// in one made within it, when slurmstepd is gone or the container could not be made; of a container that other steps
  /// share, only the tasks that asked here.
  kill_container,
};

constexpr std::string_view phrase(RootOperation operation) {
  constexpr std::array<std::string_view, 24> kPhrases = {
      "make Situla's own cgroups",
      "start the importer",
      "fetch the image before the job",
      "start a helper as the job user",
      "keep the inventory of GPUs",
      "keep what other nodes send",
      "start the courier",
      "accept the image of the store",
      "mount the image",
      "map the image's owner",
      "show the image as the user's",
      "mount a named container's image",
      "mount an image in the container",
      "stage the container's root",
      "write the id maps",
      "join the job's cgroup",
      "record the image with the job",
      "run Slurm's commands for containers",
      "keep a record for the user",
      "hand out the container's namespaces",
      "keep the job's environment",
      "note the step's directory on disk",
      "end what is left of the job",
      "end the container's processes",
  };
  return kPhrases.at(static_cast<size_t>(operation));
}

}  // namespace situla
