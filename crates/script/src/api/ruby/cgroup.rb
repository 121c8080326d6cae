# Classes of groups: the names of mruby-cgroup, on top of a few natives.
module Cgroup
  class Group
    attr_reader :group_name
    def initialize(name) @group_name = name.to_s end
    def create; Cgroup.__define(@group_name) end
    alias modify create
    alias open create
    def delete; Cgroup.__delete(@group_name) end
    alias close delete
    def exist?; Cgroup.__exist(@group_name) end
    def attach(pid = nil)
      raise NotImplementedError, "#{self.class}#attach moves nothing that runs: attach without a number, and the program this request starts is born in the group" if pid
      Cgroup.__attach(@group_name)
    end
    def detach; Cgroup.__detach end
    def self.__limits(*names)
      names.each do |name|
        define_method(name) { Cgroup.__get(@group_name, name) }
        define_method(:"#{name}=") { |value| Cgroup.__set(@group_name, name, value) }
      end
    end
    def self.__figures(*names)
      names.each do |name|
        define_method(name) { Cgroup.__figure(@group_name, name) }
      end
    end
    def self.__without(instead, *names)
      names.each do |name|
        define_method(name) { |*| raise NotImplementedError, "#{self.class}##{name} is not there for scripts: #{instead}" }
      end
    end
  end
  class CPU < Group
    __limits :cfs_quota_us, :cfs_period_us, :shares
    __without "real-time shares are not given away; use cfs_quota_us", :rt_period_us, :rt_period_us=, :rt_runtime_us, :rt_runtime_us=
    __without "Cgroup::CPUACCT has the figures", :cpuacct
    def stat; Cgroup.__figure(@group_name, :cpu_stat) end
  end
  class CPUACCT < Group
    __figures :usage
    __without "the kernel counts from when the group was made, and over all cores", :usage=, :usage_percpu
    def stat; Cgroup.__figure(@group_name, :cpuacct_stat) end
  end
  class CPUSET < Group
    __limits :cpus, :mems
  end
  class BLKIO < Group
    __limits :throttle_read_bps_device, :throttle_write_bps_device, :throttle_read_iops_device, :throttle_write_iops_device
  end
  class MEMORY < Group
    __limits :limit_in_bytes, :memsw_limit_in_bytes
    __figures :usage_in_bytes, :max_usage_in_bytes
    __without "use usage_in_bytes: swap is no further room here", :memsw_usage_in_bytes, :max_memsw_usage_in_bytes
    __without "the log tells of programs killed for want of memory", :cgroup_event_control=, :oom_control, :oom_control=
  end
  class PIDS < Group
    __limits :max
    __figures :current
  end
end
